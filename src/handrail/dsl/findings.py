"""What the lint can find: the table of its codes, and one finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, at a line and column (both from 1) of a file."""

    code: str
    message: str
    filename: str
    line: int
    column: int
    hint: str = ""

    def __str__(self) -> str:
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.filename}:{self.line}:{self.column}: {self.code} {self.message}.{hint}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a code stands for: a title, and why it matters."""

    title: str
    explanation: str


CODES: dict[str, Rule] = {
    "HR100": Rule(
        "the file does not parse",
        "Python cannot read the file, so nothing else could be checked.",
    ),
    "HR101": Rule(
        "a step that is never yielded",
        "A step does nothing until it is yielded. One that is built and dropped, compared, "
        "returned, or kept in a variable that nobody reads never runs; so do the steps of a "
        "helper that is called without `yield from`.",
    ),
    "HR102": Rule(
        "a step without a verb",
        'step("name") says only a name. A verb says what to do: .call(), .agent(), .validate().',
    ),
    "HR103": Rule(
        "yields something that is not a step",
        "A workflow yields steps and nothing else; a run ends as failed at any other value. A "
        "helper is a generator: it is driven by `yield from`.",
    ),
    "HR104": Rule(
        "a step name that is used twice",
        "A step's path is its identity in a run and is used once. Two arms of an `if` may share a "
        "name, because one of them runs; a literal name in a loop may not.",
    ),
    "HR105": Rule(
        "a name that no step can have",
        "A name has 1 to 120 printable characters, no `/`, no blank at its ends, is not `.` or "
        "`..`, and does not end in `~` and digits.",
    ),
    "HR106": Rule(
        "not a workflow function",
        "@workflow takes a plain generator function at the level of a module or inside a function: "
        "`def` with at least one `yield from step(...)`.",
    ),
    "HR107": Rule(
        "a workflow that is called in a workflow",
        "Calling a workflow starts a run of its own, outside this one's journal, limits and "
        "cancellation. .subworkflow() and .run_workflow() make it a step.",
    ),
    "HR108": Rule(
        "async code in the body",
        "A workflow's body is plain Python that cannot await. Async functions belong in steps: "
        ".call() runs them.",
    ),
    "HR109": Rule(
        "an agent that is refused",
        "There is no backend of this name, or it cannot honour an option that the agent or its "
        "step names. The launch would be refused.",
    ),
    "HR201": Rule(
        "reads the clock in the body",
        "The body runs again on resume and must decide the same way; the time is another then. "
        "Read it in a step.",
    ),
    "HR202": Rule(
        "random values in the body",
        "The body runs again on resume and must decide the same way. Draw in a step.",
    ),
    "HR203": Rule(
        "input or output in the body",
        "The body runs again on resume, on the event loop: what it reads may have changed, what "
        "it writes is written twice, and it blocks. Files, network and programs belong in steps. "
        "`print` is let pass: all it does is to print again.",
    ),
    "HR204": Rule(
        "reads the environment in the body",
        "A resume may run in another environment and decide otherwise. Take it as an input of the "
        "workflow, or read it in a step.",
    ),
    "HR205": Rule(
        "sleeps in the body",
        "It blocks the event loop, or never sleeps at all, and starts over on resume. .sleep() is "
        "a step.",
    ),
    "HR206": Rule(
        "a lambda or local function as action or body",
        "A record knows a callable by its module and qualified name. A lambda or a local function "
        "has no name of its own, so a change of it may go unnoticed on resume.",
    ),
    "HR301": Rule(
        "swallows cancellation",
        "A cancelled run throws RunCancelled into the workflow at its yield. A handler that "
        "catches it (`except:`, `except BaseException`) and does not raise it again keeps the "
        "run going.",
    ),
    "HR302": Rule(
        "leaves a finally block",
        "`return`, `break` or `continue` in a `finally` drops the exception that is on its way, a "
        "failure or cancellation among them.",
    ),
    "HR401": Rule(
        "a bare yield",
        "`yield step(...)` works, and its result is Any to a type checker. `yield from step(...)` "
        "has the step's type.",
    ),
    "HR402": Rule(
        "no return annotation",
        "Without `-> Steps[R]` a type checker takes all of the workflow for Any.",
    ),
}
