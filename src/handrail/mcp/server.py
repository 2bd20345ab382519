"""The server: lists the tools, and calls them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import jsonschema
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from handrail import __version__
from handrail.cli.journal import Place, pick_run, read
from handrail.cli.who import current_user
from handrail.errors import HandrailError
from handrail.mcp.runs import ANSWER, form_of, has_settled, list_data, run_data
from handrail.mcp.tools import LONGEST_WAIT_S, TOOLS, ToolText, tools_of_workflows
from handrail.model.results import OpenGate
from handrail.record.inbox import runs_of
from handrail.record.state import RecordedRun
from handrail.system.marker import STEP

_ABOUT = (
    "Runs workflows of this folder. `workflows` lists them, `run` begins one and returns a run_id, "
    "`result` with wait_s waits for its end. A run in the state input_required waits for a person: "
    "show them its questions, and pass on what they decide with `answer`."
)
_EVERY_S = 0.3
_SIGNED = frozenset({"answer", "guide", "stop"})
"""Commands that record who acted."""
_OF_FILES = frozenset({"list", "show"})
"""Commands that are asked for workflows, not for runs."""
_MOST_ASKED = 20
"""Forms of one call of ``result``."""

Context = ServerRequestContext[Any, Any]
Answer = types.CallToolResult | types.InputRequiredResult


def serve(place: Place, *, reads: bool) -> None:
    """Serve until the client has gone. ``reads``: offer only what reads."""
    server = _Server(place, reads=reads or STEP in os.environ)
    anyio.run(server.run)


class CommandFailed(Exception):
    """A command refused, or failed; its text is what it printed on stderr."""


class _Server:
    def __init__(self, place: Place, *, reads: bool) -> None:
        self._place = place
        self._tools = [tool for tool in TOOLS if not (reads and tool.acts)]
        self._reads = reads
        self._targets: dict[str, tuple[int, Mapping[str, Any]]] = {}
        """What is known of the workflows of each file, and when that file was changed last."""

    async def run(self) -> None:
        server = Server[Any](
            "handrail",
            version=__version__,
            instructions=_ABOUT,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.about,
                    input_schema=tool.schema,
                    annotations=types.ToolAnnotations(read_only_hint=not tool.acts),
                )
                for tool in await self._all()
            ]
        )

    async def _all(self) -> Sequence[ToolText]:
        if self._reads:
            return self._tools
        return [*self._tools, *tools_of_workflows(await self._workflows())]

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> Answer:
        given = params.arguments or {}
        tool = next((tool for tool in await self._all() if tool.name == params.name), None)
        if tool is None:
            return _failed(f"there is no tool {params.name!r} here")
        try:
            jsonschema.validate(given, tool.schema)
            if tool.words is not None:
                return _done(await self._command(tool.words(given), _client_of(context)))
            match tool.name:
                case "workflows":
                    return _done({"workflows": await self._workflows()})
                case "result":
                    return await self._result(context, params, given)
                case _:
                    return _done(await run_sync(self._status, given.get("run_id", "")))
        except jsonschema.ValidationError as error:
            return _failed(f"{error.json_path.lstrip('$.') or tool.name}: {error.message}")
        except (HandrailError, CommandFailed) as error:
            return _failed(str(error))

    # -- what is read ---------------------------------------------------------------------------

    async def _workflows(self) -> Sequence[Mapping[str, Any]]:
        """Each workflow of the folder, as its own process describes it, if that can import it."""
        listed: Any = await self._command(("list",)) or []
        return [await self._workflow(entry) for entry in listed]

    async def _workflow(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        target = entry["target"]
        at = (await anyio.Path(self._place.base, entry["file"]).stat()).st_mtime_ns
        known = self._targets.get(target)
        if known is not None and known[0] == at:
            return known[1]
        found: dict[str, Any] = {"target": target, "about": entry["description"]}
        try:
            described: Any = await self._command(("show", target))
            found["inputs"] = described["schema"]
            found["steps"] = [step["path"] for step in described["steps"]]
        except CommandFailed as error:
            found["inputs"] = {"type": "object"}
            found["about"] = f"{entry['description']} It cannot be imported: {error}".strip()
        self._targets[target] = at, found
        return found

    def _read(self, run_id: str) -> RecordedRun:
        journal = self._place.find()
        return read(journal, pick_run(journal, run_id))

    def _status(self, run_id: str) -> Mapping[str, Any]:
        if run_id:
            return run_data(self._read(run_id), steps=True)
        return list_data(runs_of(self._place.find()) if self._place.is_there() else ())

    async def _result(
        self, context: Context, params: types.CallToolRequestParams, given: Mapping[str, Any]
    ) -> Answer:
        run_id = given["run_id"]
        for path, said in (params.input_responses or {}).items():
            await self._pass_on(context, run_id, path, said)
        found = await self._settled(run_id, given)
        for _ in range(_MOST_ASKED):
            gate = next(iter(found.view.gates), None)
            if gate is None or not self._may_ask(context):
                break
            if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                params_of = types.ElicitRequestFormParams(
                    message=gate.question, requested_schema=form_of(gate)
                )
                asked = types.ElicitRequest(params=params_of)
                return types.InputRequiredResult(input_requests={gate.path: asked})
            said = await context.session.elicit_form(
                gate.question, form_of(gate), context.request_id
            )
            if not await self._pass_on(context, run_id, gate.path, said):
                break
            found = await self._settled(run_id, given, but=gate)
        return _done(run_data(found, steps=False))

    async def _settled(
        self, run_id: str, given: Mapping[str, Any], but: OpenGate | None = None
    ) -> RecordedRun:
        """The run once it ended or needs an answer, or after ``wait_s``; ``but``: a question that
        is answered already.
        """
        found = await run_sync(self._read, run_id)
        with anyio.move_on_after(min(given.get("wait_s", 0), LONGEST_WAIT_S)):
            while not has_settled(found.info) or (but is not None and but in found.view.gates):
                await anyio.sleep(_EVERY_S)
                found = await run_sync(self._read, run_id)
        return found

    def _may_ask(self, context: Context) -> bool:
        """True if the client can ask its user, and this server passes answers on."""
        known = context.session.client_capabilities
        return not self._reads and known is not None and known.elicitation is not None

    async def _pass_on(self, context: Context, run_id: str, path: str, said: Any) -> bool:
        """Answer a question as the client's user did; False if they did not."""
        if not isinstance(said, types.ElicitResult) or said.action != "accept" or not said.content:
            return False
        answer = said.content[ANSWER]
        text = answer if isinstance(answer, str) else json.dumps(answer)
        await self._command(("answer", run_id, path, text), _client_of(context))
        return True

    # -- what is done ---------------------------------------------------------------------------

    async def _command(self, words: Sequence[str], client: str = "") -> Any:
        """Run a command of handrail in a process of its own; the data that it prints.

        ``client``: whom a message to a run is recorded as sent through.
        """
        command, *others = words
        if command in _SIGNED and client:
            others += ["--by", f"{current_user()} with {client}"]
        typed = shlex.split(self._place.command(command, "--json", *others))
        if command in _OF_FILES:
            typed = ["handrail", command, "--json", *others]
        done = await anyio.run_process(
            [sys.executable, "-m", "handrail", *typed[1:]],
            stdin=subprocess.DEVNULL,
            cwd=self._place.base,
            check=False,
        )
        said = done.stderr.decode(errors="replace").strip()
        try:
            data = json.loads(done.stdout or b"null")
        except ValueError:
            data = done.stdout.decode(errors="replace").strip()
        if data is None and done.returncode:
            raise CommandFailed(said or f"exit code {done.returncode}")
        return data


def _client_of(context: Context) -> str:
    known = context.session.client_params
    return "" if known is None else known.client_info.name


def _done(data: Any) -> types.CallToolResult:
    """Data as a result: as text too, for clients that read no structured content."""
    whole: dict[str, Any] = data if isinstance(data, dict) else {"result": data}
    text = json.dumps(whole, ensure_ascii=False, indent=1)
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=whole)


def _failed(why: str) -> types.CallToolResult:
    content = types.TextContent(type="text", text=why)
    return types.CallToolResult(content=[content], is_error=True)
