import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from selfreflect.table import INTERVAL, Column, Table, latex_text, to_csv, to_latex, to_markdown, to_rich
from selfreflect.text import printable

HOSTILE = [
    "<script>alert(1)</script>",
    "a | b || c \\| d \\\\| e",
    "[link](https://evil.example) ![img](x) <https://evil.example>",
    "**bold** _it_ __b__ *x* ~~gone~~ `code` ``` $x^2$ snake_case_name",
    "line one\nline two\r\nline three",
    "# heading",
    "- item",
    "1. item",
    "> quote",
    "&lt;b&gt; &amp; &#124;",
    "https://evil.example www.evil.example",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "abc\u202edcb\u2066x\u2069\u200f",
    "lone \ud800 surrogate \udfff",
    "\x00\x08\x7f\u2028\u2029\ufeff\U000e0041",
    "[red]console markup[/red] [link=http://x]y[/link] :smile:",
    '=HYPERLINK("http://evil","x")',
    "+1+1",
    "@SUM(A1)",
    "-2+3",
    "\t=1+1",
    "\r=1+1",
]


def table(*cells, form=""):
    return Table(
        "A <b>title</b> | x",
        (Column("n", "d"), Column("text", form)),
        tuple(enumerate(cells)),
        ("first * note", "# second\nnote"),
    )


def markdown_cells(markdown: str) -> list[list[str]]:
    """The body cells as a reader of the rendered page sees them. Anything rendered as markup other than a
    line break fails."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    body = tokens[[token.type for token in tokens].index("tbody_open") :]
    rows = []
    for token in body:
        if token.type == "tr_open":
            rows.append([])
        if token.type == "tbody_close":
            break
        if token.type == "inline":
            assert all(
                child.type in ("text", "text_special") or child.content == "<br>" for child in token.children
            )
            rows[-1].append(
                "".join("\n" if child.type == "html_inline" else child.content for child in token.children)
            )
    return rows


def terminal(shown: Table, width: int = 200) -> str:
    buffer = io.StringIO()
    console = Console(file=buffer, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    for part in to_rich(shown, width):
        console.print(part)
    return buffer.getvalue()


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_hostile_text_as_text(text):
    assert words(markdown_cells(to_markdown(table(text)))[0][1]) == words(printable(text))


@given(st.text() | st.text(st.sampled_from("a_*`~[]()<>!|\\&#;\n -+.1$:/w")))
def test_markdown_shows_any_text_as_text(text):
    (row,) = markdown_cells(to_markdown(table(text)))
    assert words(row[1]) == words(printable(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_notes_and_titles_stay_one_line_of_text(text):
    markdown = to_markdown(Table(text, (Column("x"),), (("y",),), (text, "last")))
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    kinds = [token.type for token in tokens if token.level == 0 and token.nesting >= 0]
    assert kinds == ["heading_open", "table_open", "bullet_list_open"]
    assert sum(token.type == "list_item_open" for token in tokens) == 2
    inlines = [child for token in tokens if token.type == "inline" for child in token.children]
    assert all(child.type in ("text", "text_special") or child.content == "<br>" for child in inlines)


def test_markdown_keeps_plain_names_and_numbers_readable():
    markdown = to_markdown(
        Table("T", (Column("s"), Column("d", "+z.4f")), (("chain_of_thought", -0.01234), ("x", None)), ("n",))
    )
    assert (
        markdown == "### T\n\n| s | d |\n| --- | ---: |\n| chain_of_thought | -0.0123 |\n| x | – |\n\n- n\n"
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_gives_one_row_back_and_no_formula(text):
    written = to_csv(table(text))
    written.encode("utf-8")
    heading, (_, cell) = csv.reader(io.StringIO(written, newline=""))
    assert heading == ["n", "text"]
    assert cell.replace("'", "") == printable(text).replace("'", "")
    assert not any(part.lstrip(' \t"').startswith(("=", "+", "-", "@")) for part in re.split("[;\t\n]", cell))
    assert cell[0] not in "\t\r"


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\tx", "\rx", "\nx", " =1", "＝1", '"=1'])
def test_csv_text_that_could_start_a_formula_gets_an_apostrophe(text):
    _, (_, cell) = csv.reader(io.StringIO(to_csv(table(text)), newline=""))
    assert cell == "'" + printable(text)


@pytest.mark.parametrize("text", ["x\n=1+1", "x\r\n=1+1", 'x;"=1+1', "x\n\n  @SUM(1)"])
def test_no_cell_is_a_formula_where_semicolons_separate_and_quotes_mean_nothing(text):
    written = to_csv(Table("T", (Column("n"), Column("text")), ((1, text),)))
    for line in written.splitlines():
        for cell in line.split(";"):
            assert not cell.lstrip(' "').startswith(("=", "+", "-", "@")), written


@pytest.mark.parametrize("text", HOSTILE)
def test_the_terminal_gets_no_control_characters_and_no_markup(text):
    shown = terminal(Table(text, (Column("text"), Column(text, "d")), ((text, 1),), (text,)))
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", shown
    )
    shown.encode("utf-8")
    seen = "".join(character for character in shown if character not in "│┃").split()
    assert all(word in seen for word in words(printable(text)))


def test_the_terminal_never_breaks_a_number():
    columns = (Column("name"), *[Column("a rather long heading", ".4f")] * 5)
    shown = terminal(Table("T", columns, (("z" * 60, 0.1234, 0.2345, 0.3456, 0.4567, 0.5678),)), width=60)
    assert re.findall(r"0\.\d+", shown) == ["0.1234", "0.2345", "0.3456", "0.4567", "0.5678"]
    assert max(map(len, shown.splitlines())) <= 60


def test_an_interval_stays_with_its_number():
    columns = (Column("name"), *[Column("value", ".4f"), Column(INTERVAL, ".2f")] * 4)
    shown = terminal(Table("T", columns, (("a", *[0.1234, "0.10 to 0.20"] * 4),)), width=36)
    headings = [line.split() for line in shown.splitlines() if "name" in line]
    assert headings == [["name", "value", "95", "%", "CI"]] * 4


@pytest.mark.parametrize(("title", "start"), [("narrow", 7), ("a title that is wider than its table", 0)])
def test_a_title_is_one_line_above_a_narrow_table(title, start):
    rows = (("a name of some len.", 1),)
    line, heading, *_ = terminal(Table(title, (Column("name"), Column("n", "d")), rows), 80).splitlines()
    assert line.rstrip() == " " * start + title
    assert heading.split() == ["name", "n"]


@pytest.mark.parametrize("width", [80, 60])
def test_the_terminal_repeats_all_names_and_breaks_them_between_words(width):
    columns = (Column("run"), Column("strategy"), *[Column(f"number {at}", ".4f") for at in range(14)])
    rows = tuple((run, "sample_and_summarize", *range(14)) for run in ("first", "second"))
    shown = terminal(Table("T", columns, rows), width=width)
    tables = shown.split("strategy")[1:]
    assert len(tables) > 1
    for part in tables:
        assert "first" in part
        assert "second" in part
        pieces = re.findall("[a-z_]*_|summarize|sample[a-z_]*", part)
        assert set(pieces) <= {"sample_and_summarize", "sample_and_", "sample_", "and_", "summarize"}
    assert max(map(len, shown.splitlines())) <= width


def test_the_terminal_leaves_out_numbers_that_no_row_has():
    columns = (Column("name"), Column("low", ".1f"), Column("mean", ".1f"), Column("high", ".1f"))
    shown = Table("T", columns, (("a", None, 1.0, None), ("b", None, None, 3.0)))
    heading, _, *rows = terminal(shown).splitlines()[1:]
    assert heading.split() == ["name", "mean", "high"]
    assert [row.split() for row in rows] == [["a", "1.0", "–"], ["b", "–", "3.0"]]
    assert to_csv(shown).startswith("name,low,mean,high"), "files keep every column"
    heading, *_ = terminal(Table("T", columns[1:], ((None, None, None),))).splitlines()[1:]
    assert heading.split() == ["low"], "a table has a column"


@given(st.text(st.characters()))
def test_printable_text_can_be_encoded_and_holds_no_control_character(text):
    shown = printable(text)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)
    assert printable(shown) == shown


@given(st.text())
def test_latex_holds_any_text_as_text(text):
    written = to_latex(Table(text, (Column("x"),), ((text,),), (text,)))
    body = re.sub(r"\\\\|\\(?:text)?[a-z]+(?:\{\})?|\\[&%$#_{}]|\$-\$|\$\\approx\$", "", latex_text(text))
    assert not set(body) & set('&%#_{}^~<>|`"\\\n\r')
    assert written.count("\n") == 12, "no text breaks a line"


def test_latex_is_a_table_of_booktabs_with_intervals_in_one_column():
    ends = (Column("95% low", ".2f", end="low"), Column("95% high", ".2f", end="high"))
    columns = (Column("strategy"), Column("mean score", "z.0%", short="score"), *ends)
    rows = (("a_b & c", 0.5, -0.31, 1.03), ("none", None, None, None))
    lines = to_latex(Table("T", columns, rows)).splitlines()
    assert lines[3] == r"\begin{tabular}{lrr}"
    assert [line for line in lines if "rule" in line] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert r"strategy & score & 95 \% CI \\" in lines
    assert r"a\_b \& c & 50 \% & $-$0.31 to 1.03 \\" in lines
    assert lines[-1] == r"\end{table}"


def test_an_interval_takes_one_column_of_a_terminal():
    ends = (Column("95% low", ".0%", end="low"), Column("95% high", ".0%", end="high"))
    shown = terminal(Table("T", (Column("name"), *ends), (("a", 0.31, 1.03), ("b", None, None))), 40)
    assert "31 to 103\n" in shown.replace(" \n", "\n")
    assert "low" not in shown


@pytest.mark.timeout(20)
def test_a_million_empty_lines_are_written_at_once():
    text = "x" + "\n;" * 500_000 + "y"
    assert text in to_csv(table(text))
