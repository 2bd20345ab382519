"""Compares the page docs/explanation/replay.md with the code, in the names of its blocks."""

did: list[str] = []
fails = True


def perhaps() -> None:
    did.append("perhaps")
    if fails:
        raise OSError


@workflow
def undoing() -> Steps[None]:
    yield from step("a").call(did.append, "a").with_rollback(lambda ctx: did.append("undo a"))
    yield from step("b").call(did.append, "b")
    yield from step("perhaps").call(perhaps)


executor = Executor(workflows=[undoing])
run_id = executor.run_sync(undoing).run_id
assert did == ["a", "b", "perhaps", "undo a"]
did.clear()
fails = False
assert executor.resume_sync(run_id).success
assert did == ["a", "perhaps"]
