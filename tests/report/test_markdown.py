"""A report as Markdown: the same words, and nothing that is more than text."""

from pathlib import Path
from typing import Any

from stoker.report import blocks, markdown
from stoker.report.blocks import Block, Report


def report(*found: Block, **changes: Any) -> Report:
    """A report that holds some blocks."""
    values: dict[str, Any] = {
        "name": "run",
        "what": "resnet18 on dials",
        "state": "done",
        "tone": "good",
        "told": "step 5 of 5",
        "next": None,
        "cards": (blocks.Card(title="Best top-1", value="91.75 %", lines=("top-5 99.7 %", "after epoch 3")),),
        "verdict": (),
        "sentence": "Bound by arithmetic.",
        "facts": (blocks.Facts(title="What", pairs=(("Model", "resnet18"),)),),
        "sections": (blocks.Section(key="one", title="One", text="Of it all.", blocks=found),),
        "made": "Made by hand",
    }
    return Report(**{**values, **changes})


def text(*found: Block, pictures: dict[str, str] | None = None, **changes: Any) -> str:
    return markdown.text(report(*found, **changes), pictures=pictures or {})


def test_a_report_has_its_parts_in_order() -> None:
    said = text(blocks.Words(text="Some words."))
    parts = ("# run", "resnet18 on dials", "**done**: step 5 of 5", "| Best top-1 | **91.75 %** | top-5 99.7 %; after",
             "## Verdict", "**Bound by arithmetic.**", "## What", "| Model | resnet18 |", "## One", "Of it all.",
             "Some words.", "Made by hand")  # fmt: skip
    places = [said.index(part) for part in parts]
    assert places == sorted(places)


def test_a_table_keeps_its_columns_whatever_its_cells_hold() -> None:
    rows = (("a|b", "1\n2"), ("`x", "*y*"))
    said = text(blocks.Table(columns=("name", "count"), rows=rows, right=(1,), note="two of 9"))
    assert "| name | count |\n| --- | ---: |\n| a\\|b | 1 2 |\n| \\`x | \\*y\\* |\n\ntwo of 9" in said


def test_an_answer_has_its_evidence_and_its_chart() -> None:
    chart = blocks.Chart(name="losses", title="Loss", caption="lower is better", spec={})
    known = blocks.Answer(key="k", asked="Is it?", answer="It is.", evidence=("a", "b"), is_known=True, chart=chart)
    said = text(known, pictures={"losses": "report/losses.png"})
    assert "### Is it?\n\nIt is.\n\n- a\n- b\n\nlower is better\n\n![Loss](report/losses.png)" in said


def test_what_can_not_be_told_says_so() -> None:
    unknown = blocks.Answer(key="k", asked="Is it?", answer="There are no steps.", evidence=(), is_known=False)
    assert "*Can't tell.* There are no steps." in text(unknown)


def test_markup_in_names_is_text() -> None:
    hostile = "<script>alert(1)</script> [x](http://a.b) # *b* @someone | `c`"
    said = text(blocks.Words(text=hostile), name=hostile)
    assert "<script" not in said and "\\[x\\](http" in said and "://" not in said and "@someone" not in said
    assert said.splitlines()[0].startswith("# &lt;script&gt;alert(1)")


def test_a_line_never_begins_a_list() -> None:
    assert markdown.safe("- item") == "\\- item"
    assert markdown.safe("12. item") == "12\\. item"
    assert markdown.safe("a - b, -1.5 and #3") == "a - b, -1.5 and #3"
    assert markdown.safe("## head") == "#\\# head" and markdown.safe("---") == "--\\-"


def test_a_command_stays_in_its_fence() -> None:
    said = text(blocks.Command(what="Go on", text="stoker train --name '```\n# no heading'"))
    assert "Go on:\n\n````sh\nstoker train --name '```\n# no heading'\n````" in said


def test_pictures_are_shown_where_they_lie() -> None:
    seen = blocks.Seen(path=Path("run/exhibits/a.png"), kind="png", data=b"", caption="a | cat")
    said = text(blocks.Pictures(pictures=(seen,), note="2 more"), pictures={"run/exhibits/a.png": "exhibits/a.png"})
    assert "| ![a \\| cat](exhibits/a.png) | a \\| cat |" in said and "2 more" in said


def test_what_is_folded_and_grouped_is_there() -> None:
    inner = blocks.Folded(title="All of it", blocks=(blocks.Quote(text="as it is"),))
    said = text(blocks.Group(title="Group", text="about it", blocks=(inner, blocks.Points(items=("p", "q")))))
    wanted = (
        "### Group\n\nabout it\n\n<details><summary>All of it</summary>\n\n```\nas it is\n```\n\n</details>\n\n- p\n- q"
    )
    assert wanted in said


def test_the_command_that_goes_on_stands_above() -> None:
    said = text(next=blocks.Command(what="Goes on", text="stoker train"), state="killed")
    assert said.index("stoker train") < said.index("## Verdict")


def test_shares_are_words() -> None:
    part = blocks.Part(name="data_wait", share=0.5, text="50.0 %", colour="#fff")
    said = text(verdict=(blocks.Shares(of="3 s", parts=(part,)),))
    assert "data\\_wait **50.0 %** of 3 s" in said
