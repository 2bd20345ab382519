"""What a workflow file may say, by kind of mapping; what has no counterpart is refused.

A rule is a key, perhaps with ``!`` (it must be there) and what its value is: ``{kind}`` and
``[kind]`` are a mapping and a list of mappings of a kind, ``{*kind}`` has one by each name,
``{}`` has anything, ``*list`` and ``*texts`` have scalars, ``#`` is a number above 0, ``%`` any
number, ``a|b`` are words, ``?`` is anything, ``-`` is refused. A key without a rule has a scalar.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from handrail.addons import FileRefused
from handrail.errors import did_you_mean
from handrail.yaml.reading import Mapped

_LACKING = """skills=- plugins=- dialog=- session_key=- context_tier=- max_session_seconds=-
 default_context_tier=- skill_discovery=- skill_injection=- plugin_sources=- tool_output=-
 sandbox=-"""
_NODE = "name! description type input=*list routes=[route] output={*field}"
_TYPE = "string|number|boolean|array|object"
_GROUP = "failure_mode=fail_fast|continue_on_error|all_or_nothing routes=[route]"
_WH = "id! type activity next! outputs=[wh-output]"
_SCHEMAS = f"""
conductor: workflow={{flow}}! tools=? agents=[node]! parallel=[parallel] for_each=[for_each]
 output=*texts
flow: name! description version entry_point! runtime={{runtime}} input={{*input}} metadata=?
 context={{context}} limits={{limits}} cost={{cost}} instructions=*list hooks=-
runtime: provider=provider default_model mcp_servers={{*mcp}} temperature=% max_tokens=# timeout=#
 max_agent_iterations=# default_reasoning_effort checkpoint=? working_dir {_LACKING}
mcp: type command args=*list env=*texts url headers=*texts tools=*list
input: type!={_TYPE} required default=? description
context: mode=accumulate|last_only|explicit max_tokens=- trim_strategy=-
limits: max_iterations=# timeout_seconds=# budget_usd=# budget_mode=audit|enforce
cost: show_per_agent show_summary pricing=-
field: type={_TYPE} description items={{field}} properties={{*field}} enum=*list pattern minimum=%
 maximum=% minLength=% maxLength=% required nullable
route: to! when output=*texts
agent: {_NODE} prompt! system_prompt model provider=provider tools=*list output_mode=raw|envelope
 timeout_seconds=# max_agent_iterations=# retry={{retry}} reasoning={{reasoning}} working_dir
 validator={{validator}} {_LACKING}
retry: max_attempts=# backoff=fixed|exponential delay_seconds=% retry_on=?
 max_parse_recovery_attempts=%
reasoning: effort
validator: criteria! model max_retries=%
script: {_NODE} command! args=*list env=*texts working_dir stdin timeout=#
human_gate: {_NODE} prompt! options=[option]!
option: label! value! route! prompt_for multiline
set: {_NODE} value=? values={{}} output_type=auto|string|number|integer|boolean|list|dict
wait: {_NODE} duration! reason
workflow: {_NODE} workflow! input_mapping=*texts timeout_seconds=# max_depth=-
terminate: {_NODE} status!=success|failed reason! output_template=*texts
questions: {_NODE} type=-questions prompt=? options=? source=? allow_back allow_skip allow_skip_all
 allow_abort abort_route
parallel: name! description agents!=*list {_GROUP}
for_each: name! description type source! as! agent={{node}}! max_concurrent=# key_by {_GROUP}
workhorse: name description start! vars={{}} env=*texts labels=? nodes=[wh-node]!
 flows={{*workhorse}} requires=-
wh-agent: {_WH} prompt! args=*texts power=- model=model timeout cwd add_dirs=?
wh-script: {_WH} script! args=*list cwd env=*texts refuel=-
wh-call: {_WH} fn!=incr|seed args=*texts refuel=-
wh-flow: {_WH} name! args=*texts
wh-branch: id! type path! cases=*texts conditions=[wh-condition] default
wh-terminal: id! type
wh-fail: id! type
wh-output: key! default=? wrap
wh-condition: op!===|!=|<|>|<=|>= value! next!
"""


def _table(text: str) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in text.strip().replace("\n ", " ").splitlines():
        kind, *rules = line.split()
        pairs = [rule.partition("=") for rule in rules]
        found[kind.removesuffix(":")] = {
            key.removesuffix("!"): value + "!" * key.endswith("!") for key, _, value in pairs
        }
    return found


SCHEMAS = _table(_SCHEMAS)
"""By kind and by key: the rule, with ``!`` at its end if the key must be there."""
_PROGRAM = "The agent's program has its own: put it where that looks for it."
_CONTEXT = "Write `mode: explicit`, and what each agent needs in `input:`."
_TIER = "Name a model that has this window in `model:`."
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("skill_discovery", "skill_injection", "plugins", "plugin_sources"), _PROGRAM),
    **dict.fromkeys(("max_tokens", "trim_strategy"), _CONTEXT),
    **dict.fromkeys(("context_tier", "default_context_tier"), _TIER),
    "skills": f"{_PROGRAM} Or write its text into the prompt.",
    "dialog": "Ask in a human_gate after the agent, and give its answer to the next prompt.",
    "session_key": "Convert the file, and write .agent(..., session=earlier) in Python.",
    "max_session_seconds": "Write `timeout_seconds:`, which ends an agent that takes too long.",
    "tool_output": "Set it in the agent's program.",
    "questions": "Write a human_gate for each question; nobody goes back or skips there.",
    "sandbox": "Put a boundary around the run: sandbox = true in [tool.handrail].",
    "hooks": "Write notify, or sinks, in [tool.handrail].",
    "pricing": "handrail has prices of its own, and takes those that a program reports.",
    "max_depth": "Write Limits(max_depth=) for the executor.",
    "requires": "Write a script node that fails where a tool is missing, and make it the start.",
    "refuel": "Bound the run: --max-steps, or max_steps in [tool.handrail].",
    "power": "Write `model:` with its name, or set model in [tool.handrail].",
    "model": "Write one name; which program has it, --backend says.",
    "provider": "Set it where the program looks for it: its own settings, or the environment.",
}
"""By the key that has no counterpart: what to write instead."""
BACKENDS = {"copilot": "copilot", "claude": "claude", "claude-agent-sdk": "claude", "openai": "api"}
"""Backends by Conductor's names of providers."""


def refusals(said: Mapped, kind: str, without: Collection[str]) -> Iterator[FileRefused]:
    """What a mapping of this kind says that it may not, but for the keys to be left out."""
    rules = SCHEMAS[kind]
    for key, rule in rules.items():
        value = said.get(key)
        is_empty = not value and (rule.startswith(("{", "[", "*")) or key in {"name", "id"})
        if rule.endswith("!") and (value is None or is_empty):
            yield said.refuse(key, f"`{key}:` is missing here", "Add it.")
    for key, value in said.items():
        if key not in rules:
            near = did_you_mean([key], list(rules)) or f" There are: {', '.join(rules)}."
            yield said.refuse(key, f"there is no key {key!r} here", near.strip())
        elif value is not None and value is not False and value not in ("", [], {}):
            yield from _of_value(said, key, rules[key].removesuffix("!"), without)


def _of_value(said: Mapped, key: str, rule: str, without: Collection[str]) -> Iterator[FileRefused]:
    value = said[key]
    lacks: list[tuple[str, str]] = []
    match rule[:1]:
        case "-":
            lacks = [(rule[1:] or key, f"`{key}:`")]
        case "{" | "[":
            yield from _of_members(said, key, rule, without)
        case "p":
            settings = value if isinstance(value, Mapped) else {}
            name = settings.get("name", value)
            if not isinstance(name, dict) and str(name) not in BACKENDS:
                lacks = [(rule, f"the provider {name!r}")]
            lacks += [(rule, f"`provider.{one}:`") for one in settings if one != "name"]
        case _ if rule == "model" and not isinstance(value, str):
            lacks = [(rule, "a model for each program")]
        case _ if "|" in rule and str(value) not in rule.split("|"):
            words = ", ".join(rule.split("|"))
            yield said.refuse(key, f"{value!r} is no word for `{key}:`", f"Write one of: {words}.")
        case _ if wanted := _wanted(value, rule):
            yield said.refuse(key, f"`{key}:` must be {wanted}", "Write it so.")
        case _:
            return
    for name, what in lacks:
        if name == "questions":
            yield said.refuse(key, f"a node of type {name!r} has no counterpart", INSTEAD[name])
        elif name not in without:
            leave = f"To run without it: yaml_without = {name!r} in [tool.handrail]."
            yield said.refuse(key, f"{what} has no counterpart", f"{INSTEAD[name]} {leave}")


def _wanted(value: Any, rule: str) -> str:
    """What a value must be that is not as its rule has it, else nothing."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    kind = {"*texts": Mapped, "*list": list}.get(rule, object)
    members = value.values() if isinstance(value, dict) else value
    match rule:
        case "#" if not is_number or value <= 0:
            return "a number above 0"
        case "%" if not is_number:
            return "a number"
        case "" if isinstance(value, (dict, list)):
            return "one value, no mapping or list"
        case "*texts" | "*list" if not isinstance(value, kind) or any(
            isinstance(member, (dict, list)) for member in members
        ):
            return "a mapping of names to texts" if rule == "*texts" else "a list of texts"
        case _:
            return ""


def _of_members(
    said: Mapped, key: str, rule: str, without: Collection[str]
) -> Iterator[FileRefused]:
    members: Any = said[key] if rule.startswith("[") else [said[key]]
    if rule.startswith("{*") and isinstance(said[key], Mapped):
        members = list(said[key].values())
    if not isinstance(members, list) or not all(isinstance(one, Mapped) for one in members):
        what = "list of mappings" if rule.startswith("[") else "mapping"
        yield said.refuse(key, f"`{key}:` must be a {what}", "Write `name: value` below it.")
        return
    for member in members if rule != "{}" else ():
        kind = rule.strip("{}[]*").replace("node", str(member.get("type") or "agent"))
        if kind in SCHEMAS:
            yield from refusals(member, kind, without)
        else:
            near = did_you_mean([kind], list(SCHEMAS)).replace("wh-", "").strip()
            what = f"there is no node of type {member['type']!r}"
            yield member.refuse("type", what, near or "Correct it.")
