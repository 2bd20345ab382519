"""The arguments of a program, read as that program reads them."""

from __future__ import annotations

from collections.abc import Iterable


class UnknownOption(Exception):
    """An argument that the program does not have."""


class Options:
    """``given`` maps each option to its values, ``words`` are the arguments that are no option."""

    def __init__(
        self,
        argv: Iterable[str],
        *,
        valued: Iterable[str],
        plain: Iterable[str] = (),
        many: Iterable[str] = (),
        same: dict[str, str] | None = None,
    ) -> None:
        """Read ``argv``.

        ``valued`` options take one value, ``many`` all words up to the next option, ``plain`` none;
        ``same`` maps short names to long ones.

        Raises:
            UnknownOption: there is another one.
        """
        self.given: dict[str, list[str]] = {}
        self.words: list[str] = []
        valued, plain, many = set(valued), set(plain), set(many)
        rest = list(argv)
        while rest:
            word = rest.pop(0)
            if word == "--":
                self.words += rest
                break
            if not word.startswith("-") or word == "-":
                self.words.append(word)
                continue
            name, equals, value = word.partition("=")
            name = (same or {}).get(name, name)
            if name not in valued | plain | many:
                raise UnknownOption(word)
            values = self.given.setdefault(name, [])
            if equals:
                values.append(value)
            elif name in many:
                while rest and not rest[0].startswith("-"):
                    values.append(rest.pop(0))
            elif name in valued and rest:
                values.append(rest.pop(0))

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def get(self, name: str) -> str | None:
        """The last value of an option."""
        values = self.given.get(name)
        return values[-1] if values else None
