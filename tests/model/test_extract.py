"""The answer in what a model wrote."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from handrail.typed import extract
from handrail.typed.extract import MAX_TRIED, NoAnswer, ParsedAnswer, Span, last_fitting, structures


class Verdict(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Report:
    title: str
    score: int = 0


def value_in(text: str, type_: Any) -> Any:
    """The value found in ``text``, which is read from a piece of it."""
    found = last_fitting(text, type_)
    assert isinstance(found, ParsedAnswer), found
    assert found.source in text
    return found.value


def reason_in(text: str, type_: Any) -> str:
    """The reason why nothing was found in ``text``."""
    missing = last_fitting(text, type_)
    assert isinstance(missing, NoAnswer), missing
    return missing.reason


PROSE = 'Say {"title": "an example"} first.\n\n'
ANSWER = '{"title": "answer", "score": 1}'


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        f"\n  {ANSWER}\n",
        f"{PROSE}{ANSWER}",
        f"{PROSE}Here it is: {ANSWER}. Good luck!",
        f"{PROSE}```json\n{ANSWER}\n```\nDone.",
        f"{PROSE}```\n{ANSWER}\n```",
        f"{PROSE}~~~ json\n{ANSWER}\n~~~",
        f"{PROSE}```json\n{ANSWER}",
        f"{PROSE}> ```json\n> {ANSWER}\n> ```",
        f"{PROSE}````markdown\n# Report\n```json\n{ANSWER}\n```\n````",
        f"{PROSE}```markdown\n```json\n{ANSWER}\n```\n```",
        f"{PROSE}`{ANSWER}`",
        f"{PROSE}**{ANSWER}**",
        f'{PROSE}<answer title="x">{ANSWER}</answer>',
        f"{PROSE}[see above] {ANSWER} [1] {{x}} [\"a\", 'b']",
        f"{PROSE}array[0] = ({ANSWER});",
        f"{PROSE}unclosed [ and {{ and [[ {ANSWER} [ {{",
        f'{PROSE}an open quote ["{ANSWER}',
        f'{PROSE}a stray quote ["oops {ANSWER}',
        f"{PROSE}{ANSWER}{{}}",
        f'{PROSE}{ANSWER}\n{{"title": 5}}',
        f'{PROSE}{ANSWER}\n{{"title": "x", }}',
        "{\n" + ANSWER,
        f"{PROSE}[1, 2\n{ANSWER}",
    ],
)
def test_the_last_value_that_fits_is_the_answer(text: str) -> None:
    """Fenced or not, before or after anything else, the last record of the type is found."""
    assert Report("answer", 1) == value_in(text, Report)


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("[1, 2]", list[int], [1, 2]),
        ('First [1], then ["a"], last [2] and ["b"].', list[int], [2]),
        ('{"a": {"b": [1]}}', dict[str, dict[str, list[int]]], {"a": {"b": [1]}}),
        ('{"a": "} ] \\" {"}', dict[str, str], {"a": '} ] " {'}),
        ('{"doc": "```json\\n{}\\n```"}', dict[str, str], {"doc": "```json\n{}\n```"}),
        ('[{"title": "a"}, {"title": "b"}]', list[Report], [Report("a"), Report("b")]),
        ('{"when": "2024-02-29"}', dict[str, date], {"when": date(2024, 2, 29)}),
        ("5", int, 5),
        ("  -5\n", int, -5),
        ("I counted.\n\n5", int, 5),
        ("I counted.\n\n**5**\n", int, 5),
        ("```json\n5\n```\nThat is 6 less than 11.", int, 5),
        ("```\n4\n```\n```\n5\n```", int, 5),
        ("```markdown\n```json\n5\n```\n```", int, 5),
        ("```\n5", int, 5),
        ("true", bool, True),
        ("1e3", float, 1000.0),
        ("null", int | None, None),
        ('"good"', Verdict, Verdict.GOOD),
        ("good", Verdict, Verdict.GOOD),
        ("It is fine.\n\n`good`", Verdict, Verdict.GOOD),
        ("GOOD", Verdict, Verdict.GOOD),
        ("yes", Literal["yes", "no"], "yes"),
        ('Not "no" but\n"yes"', Literal["yes", "no"], "yes"),
        ("plain words", str | None, "plain words"),
        ("null", str | None, None),
        ('words {"title": "t"}', str | Report, Report("t")),
        ("only words", str | Report, "only words"),
        ("only words", Any, "only words"),
        ('words {"a": 1}', Any, {"a": 1}),
    ],
)
def test_answers_of_every_type(text: str, type_: Any, expected: Any) -> None:
    """Structures are found anywhere; scalars and bare words where they stand alone."""
    assert expected == value_in(text, type_)


@pytest.mark.parametrize("text", ["", "  plain *text* \n", '{"a": 1}', '"quoted"', "```\nx\n```"])
def test_a_text_answer_is_the_text_itself(text: str) -> None:
    """For str the answer is all of the text, whatever it holds, without the blanks round it."""
    assert ParsedAnswer(text.strip(), text.strip()) == last_fitting(text, str)


def test_a_text_answer_keeps_to_its_constraints() -> None:
    """A constraint on a str holds for the text."""
    short = Annotated[str, msgspec.Meta(max_length=3)]
    assert value_in(" abc ", short) == "abc"
    assert reason_in("abcd", short) == "Expected `str` of length <= 3"


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("I took 5 steps", int),
        ("5 steps", int),
        ("it is true that", bool),
        ("```\nx = 5\n```", int),
        ("5\nand more", int),
        ("```\nno 5\n```\n5\n```\nprose\n```", int),
        ("I could not find the file.", Path),
        ("No idea.", Report),
        ("yes and no", Literal["yes", "no"]),
        ("nan", float),
    ],
)
def test_scalars_in_prose_are_no_answer(text: str, type_: Any) -> None:
    """A number or word among others is not taken for the answer."""
    assert reason_in(text, type_) == "no JSON value found"


@pytest.mark.parametrize(
    "text",
    [
        '{"title": "cut", "parts": [{"title": "inner"}], "mo',
        '{"title": "cut", "parts": [{"title": "inner"}',
        '{"title": "bad" "parts": [{"title": "inner"}]}',
        '{"title": "bad", parts: [{"title": "inner"}]}',
        '[{"title": "a"}, {"title": "b",}, {"title": "c"}]',
        '{"parts": [{"title": "inner"}]}',
        '[{"title": "inner"}, {"title": "other"}]',
        '{"title": "a "quote" in it", "parts": [{"title": "inner"}]}',
    ],
)
def test_a_part_of_an_answer_is_not_the_answer(text: str) -> None:
    """What stands inside a value, be it complete, cut off or malformed, is not taken for it."""
    assert isinstance(last_fitting(text, Report), NoAnswer)


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("", Report, "no JSON value found: the answer is empty"),
        ("Sorry, no.", Report, "no JSON value found"),
        ('{"title": 5}', Report, "Expected `str`, got `int` - at `$.title`"),
        ('{"title": "a", "score": "1"}', Report, "Expected `int`, got `str` - at `$.score`"),
        ('{"title": 5} {"score": 5}', Report, "Object missing required field `title`"),
        ("[1]", Report, "Expected `object`, got `array`"),
        ('["a"]', list[int], "Expected `int`, got `str` - at `$[0]`"),
        ('"fine"', Verdict, "Expected one of 'good', 'bad', got 'fine'"),
        (
            '{"title": 5} {"title": "a",}',
            Report,
            (
                "malformed JSON: '}' follows after '{\"title\": \"a\",', "
                "expected a key in double quotes"
            ),
        ),
        (
            '{"title": "a", "sco',
            Report,
            (
                'malformed JSON: \'"sco\' follows after \'{"title": "a", \', '
                "expected a key in double quotes"
            ),
        ),
        (
            '```json\n{"title": "a"',
            Report,
            'the JSON breaks off after \'{"title": "a"\', expected `,` or `}`',
        ),
        ("[" * 100_000 + "]" * 100_000, list[Any], "it is nested too deeply"),
        ("1e400", float, "Number out of range"),
    ],
)
def test_the_reason_can_be_quoted_in_a_new_question(text: str, type_: Any, expected: str) -> None:
    """The reason says what was wrong with the last thing that could have been the answer."""
    assert expected == reason_in(text, type_)


@pytest.mark.extra("pydantic")
def test_pydantic_answers() -> None:
    """A pydantic model is an output type like any other."""
    import pydantic

    class Model(pydantic.BaseModel):
        when: date

    text = 'A {"when": "2024-01-01"}, B {"when": "2024-02-29"}, C {"when": "soon"}'
    assert Model(when=date(2024, 2, 29)) == value_in(text, Model)
    assert reason_in('{"when": 5.5}', Model).endswith("- at `$.when`")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
reports = st.builds(Report, st.text(), st.integers(-9, 9))
noise = st.text('[]{}":,\\`~*1a\n \t', max_size=12) | st.sampled_from(
    ["See [1].", "```json\n", "\n```\n", "~~~", "{x}", 'the "word"', "don't", "[[", "]}", '["']
)
has_key = re.compile(r'"\s*:\s*')


@given(st.lists(st.tuples(noise, reports, noise), min_size=1, max_size=4), noise)
@example([('["', Report("t"), "")], "")
@example([("[", Report("t"), ""), ("{", Report("u"), "")], "]")
def test_the_last_of_several_is_found_among_noise(
    parts: list[tuple[str, Report, str]], tail: str
) -> None:
    """Whatever stands round the values, the last one that fits is the answer."""
    outside = [piece for before, _, after in parts for piece in (before, after)]
    assume(not any(has_key.search(piece) for piece in (*outside, tail)))  # no object begun in it
    pieces = [f"{before}\nso {json.dumps(vars(report))}{after}" for before, report, after in parts]
    assert parts[-1][1] == value_in("".join((*pieces, tail)), Report)


@given(json_values.filter(lambda value: isinstance(value, (list, dict))), st.integers(0, 3))
def test_one_pass_finds_what_a_json_parser_finds(value: Any, indent: int) -> None:
    """A whole document is one structure, however it is written."""
    text = json.dumps(value, indent=indent or None, ensure_ascii=bool(indent))
    assert [Span(2, 2 + len(text))] == structures(f"> {text} <")


@given(st.text('[]{}":,\\1a \n', max_size=40))
@example('["a" [1]')
@example('{"a":[1]')
def test_every_structure_found_is_json(text: str) -> None:
    """What the pass calls complete is JSON, stands apart from the rest, and lies in the text."""
    end = 0
    for span in structures(text):
        assert end <= span.start < span.end <= len(text)
        end = span.end
        if span.flaw is None:
            json.loads(text[span.start : span.end])


@given(st.text('[]{}":,1 \n', max_size=30).filter(lambda text: not has_key.search(text)))
def test_no_array_is_missed(text: str) -> None:
    """Without objects begun in it, each array a parser can read lies in some structure found."""
    decoder = json.JSONDecoder()
    found = structures(text)
    for start in (place for place, character in enumerate(text) if character == "["):
        try:
            _, end = decoder.raw_decode(text, start)
        except ValueError:
            continue
        if '"' not in text[:start]:
            assert any(span.start <= start and end <= span.end for span in found)


@given(st.text())
def test_any_text_has_an_end(text: str) -> None:
    """Whatever a model writes, the end is ParsedAnswer or NoAnswer with a reason."""
    for type_ in (Report, list[int], int, Verdict, dict[str, Any]):
        found = last_fitting(text, type_)
        assert isinstance(found, ParsedAnswer) or found.reason


class CountingPattern:
    """A pattern that counts the characters it was asked to look at."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.looked_at = 0

    def match(self, text: str, position: int) -> re.Match[str] | None:
        """As the pattern's own."""
        match = self.pattern.match(text, position)
        self.looked_at += (match.end() if match else position) - position + 1
        return match

    def search(self, text: str, position: int, end: int | None = None) -> re.Match[str] | None:
        """As the pattern's own."""
        stop = len(text) if end is None else end
        found = self.pattern.search(text, position, stop)
        self.looked_at += (found.end() if found else stop) - position + 1
        return found

    def finditer(self, text: str, position: int) -> Any:
        """As the pattern's own."""
        for found in self.pattern.finditer(text, position):
            self.looked_at += found.end() - position
            position = found.end()
            yield found
        self.looked_at += len(text) - position


HARD = [
    "[", "{", "[]", "[1] ", '["', '{"', '{"a":', '{"a":x', '{"a":[', '{"a":[}', '["[', '["a["b',
    '"', '[{"a":1},', "[[]", "[,", '["\\', '{"a":{x}', '{"a":1}', '[" ', "[\n", '[""', '["","',
]  # fmt: skip


@pytest.mark.parametrize("unit", HARD)
@pytest.mark.parametrize("lead", ["", "[", '["', '{"a":'])
def test_the_work_grows_with_the_text_only(
    unit: str, lead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text makes the pass look at its characters more than a few times."""
    text = lead + unit * (6_000 // len(unit))
    patterns = [
        CountingPattern(getattr(extract, name)) for name in ("_TOKEN", "_START", "_BRACKET")
    ]
    for name, pattern in zip(("_TOKEN", "_START", "_BRACKET"), patterns, strict=True):
        monkeypatch.setattr(extract, name, pattern)
    structures(text)
    assert sum(pattern.looked_at for pattern in patterns) < 8 * len(text)


def test_candidates_are_tried_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of countless values costs a bounded number of attempts to read one."""
    tried: list[str] = []
    read = extract.fit_json

    def counted(text: str, type_: Any) -> Any:
        tried.append(text)
        return read(text, type_)

    monkeypatch.setattr(extract, "fit_json", counted)
    assert reason_in("[]" * 10_000, Report) == "Expected `object`, got `array`"
    assert len(tried) == MAX_TRIED


@pytest.mark.parametrize(
    "unit", ["```a\n", "```", "~~~\n", "`", "> ", "\n", "```" + "a" * 50 + "`\n"]
)
def test_fences_without_end_are_read(unit: str) -> None:
    """A text of nothing but fences has no answer in it."""
    assert reason_in(unit * 2_000 + "x", int) == "no JSON value found"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('{"title": "a\nb"}', "a\nb"),
        ('{"title": "a\r\n\tb"}', "a\r\n\tb"),
        ('[{"title": "a"}]', "a"),
        ('{"result": {"title": "a"}}', "a"),
        ('Here:\n```json\n{"output": [{"title": "a\n"}]}\n```\nDone.', "a\n"),
    ],
)
def test_what_models_do_to_json_is_forgiven(text: str, title: str) -> None:
    """Raw line ends in strings, and a wrapper around one value, cost no second turn."""
    found = last_fitting(text, Report)
    assert isinstance(found, ParsedAnswer), found
    assert found.value == Report(title)


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ('{"answer": 5}', int, 5),
        ('{"result": "no"}', Literal["yes", "no"], "no"),
        ('["a\nb"]', list[str], ["a\nb"]),
        ('{"value": {"count": 5}}', dict[str, int], {"count": 5}),
        ('{"Report": {"title": "a"}}', Report, Report("a")),
        ('{"result": {"Report": {"title": "a"}}}', Report, Report("a")),
        ('{"Report": {"title": "a"}}', dict[str, Report], {"Report": Report("a")}),
        ('{"result": {"title": "a"}}', dict[str, Any], {"result": {"title": "a"}}),
    ],
)
def test_a_wrapper_gives_way_only_where_the_type_fits(text: str, type_: Any, value: Any) -> None:
    """What fits as it stands stays as it is."""
    found = last_fitting(text, type_)
    assert isinstance(found, ParsedAnswer), found
    assert found.value == value


@pytest.mark.parametrize("text", ["See [1].", "[5]", '{"count": 5}', '{"result": 5, "more": 1}'])
def test_a_number_in_something_else_is_no_answer(text: str) -> None:
    """A list of one number, or a member with a name of its own, is not the number."""
    assert isinstance(last_fitting(text, int), NoAnswer)
