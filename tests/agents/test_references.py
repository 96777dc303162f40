"""Texts that state numbers by reference: lookup, units, origins, complaints, and what reaches a page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from itertools import product
from typing import Any

import pytest

from proposals.agents.references import Rendered, resolve, without_sentences
from proposals.agents.tool_result import Result, about, to_json
from proposals.agents.typed_numbers import Found, Typed
from proposals.agents.values import UnitError, Value, combined, shown_as

HOSTILE = '<img src=x onerror=alert(1)> **bold** [a](javascript:alert(1)) {r1.total_bytes} ⁅0⁆ `"'


def row(number: int, note: str, *estimate: float, **more: Any) -> Result:
    time = Result(zip(("estimate", "low80", "high80"), estimate, strict=True))
    return Result(number=number, step_time_s=time, note=note, **more,
                  _about=about("predicted", f"proposal {number}", f"proposal:{number}", mfu="computed"))  # fmt: skip


RUN = Result(
    step_time_s=1.423, total_bytes=32.9e9, breakdown_s={"compute": 0.478, "ici:model": 0.799},
    mesh={"ici": {"fsdp": 16, "tensor": 4}}, text="", _about=about(href="kpi:step_time_s", step_time_s="measured"),
    rows=[row(1, "links: 850 GB/s", 0.63, 0.54, 0.79, mfu=0.4), row(2, HOSTILE, 0.98, 0.89, 1.1)],
)  # fmt: skip
RESULTS = {"r1": RUN}


def one(reference: str) -> Value:
    rendered = resolve(f"{{{reference}}}", RESULTS)
    assert not rendered.complaints, rendered.complaints
    (value,) = rendered.values
    return value


def complaint(reference: str) -> str:
    (found,) = resolve(f"a {{{reference}}} b", RESULTS).complaints
    return found.message


# What a reference is


@pytest.mark.parametrize(
    ("reference", "value", "unit", "origin", "subject", "href"),
    [
        ("r1.step_time_s", 1.423, "s", "measured", "step time", "kpi:step_time_s"),
        ("r1.total_bytes", 32.9e9, "bytes", "computed", "total", "kpi:step_time_s"),
        ("r1.breakdown_s.compute", 0.478, "s", "computed", "breakdown compute", "kpi:step_time_s"),
        ("r1.breakdown_s.ici_model", 0.799, "s", "computed", "breakdown ici:model", "kpi:step_time_s"),
        ('r1.breakdown_s["ici:model"]', 0.799, "s", "computed", "breakdown ici:model", "kpi:step_time_s"),
        ("r1.rows[1].step_time_s.estimate", 0.98, "s", "predicted", "proposal 2 · step time", "proposal:2"),
        ("r1.rows[0].mfu", 0.4, "share", "computed", "proposal 1 · MFU", "proposal:1"),
    ],
)
def test_a_reference_knows_unit_origin_subject_and_link(
    reference: str, value: float, unit: str, origin: str, subject: str, href: str
) -> None:
    found = one(reference)
    assert (found.value, found.unit, found.origin, found.subject, found.href) == (value, unit, origin, subject, href)


def test_a_stored_result_is_printed_as_the_one_that_it_was_written_from() -> None:
    data = json.loads(json.dumps(to_json(RUN)))
    for reference in ("r1.rows[0].step_time_s", "r1.breakdown_s.compute / r1.step_time_s as percent", "r1.mesh"):
        assert resolve(f"{{{reference}}}", {"r1": data}) == resolve(f"{{{reference}}}", RESULTS)


def test_a_range_is_printed_with_its_interval_and_an_estimate_keeps_it() -> None:
    assert resolve("{r1.rows[0].step_time_s}", RESULTS).plain.replace("\xa0", " ") == "630 ms (540–790 ms)"
    assert one("r1.rows[0].step_time_s.estimate").interval.replace("\xa0", " ") == "540–790 ms"
    assert resolve("{r1.mesh}", RESULTS).plain == "fsdp 16 · tensor 4"


def test_braces_that_refer_to_nothing_are_words() -> None:
    text = 'a {fsdp=8} {"data": 4} {} {x} { }'
    assert resolve(text, RESULTS) == Rendered((text,))


# Expressions


def test_expressions_compute_as_arithmetic_does() -> None:
    a, b = 1.423, 0.478
    for text, expected in [
        ("r1.step_time_s - r1.breakdown_s.compute", a - b), ("r1.step_time_s / r1.breakdown_s.compute", a / b),
        ("(r1.step_time_s + r1.breakdown_s.compute) / 2", (a + b) / 2), ("-r1.step_time_s * 2", -2 * a),
        ("1 - r1.breakdown_s.compute / r1.step_time_s", 1 - b / a),
    ]:  # fmt: skip
        assert one(text).value == pytest.approx(expected)
        assert one(text).formula


QUANTITIES = [
    Value(3.0, "s", "measured"), Value(4.0, "bytes", "computed"), Value(2.0, "bytes_per_s", "predicted"),
    Value(0.5, "share", "stated"), Value(6.0, "count", "measured"), Value(8.0, "flops", "computed"),
]  # fmt: skip


def test_unit_algebra_keeps_its_laws() -> None:
    for one_side, other in product(QUANTITIES, QUANTITIES):
        there = combined("*", one_side, other)
        back = combined("/", there, other)
        assert isinstance(there, Value) and isinstance(back, Value)
        assert back.value == pytest.approx(one_side.value)
        if one_side.unit not in ("share", "count"):
            assert back.unit == one_side.unit
        turned = combined("*", other, one_side)
        assert isinstance(turned, Value)
        assert there.unit == turned.unit
        origins = {one_side.origin, other.origin}
        alike = next(iter(origins)) if len(origins) == 1 else "computed"
        assert there.origin == ("predicted" if "predicted" in origins else alike)
        assert back.origin == there.origin
    rate = combined("/", QUANTITIES[1], QUANTITIES[0])
    assert isinstance(rate, Value) and rate.unit == "bytes_per_s"
    ratio = combined("/", QUANTITIES[0], QUANTITIES[0])
    assert isinstance(ratio, Value) and ratio.unit == ""


def test_different_units_are_neither_added_nor_printed_as_each_other() -> None:
    for one_side, other in product(QUANTITIES, QUANTITIES):
        alike = {one_side.unit, other.unit} <= {"share", "count"} or one_side.unit == other.unit
        for operator in "+-":
            if alike:
                combined(operator, one_side, other)
            else:
                with pytest.raises(UnitError):
                    combined(operator, one_side, other)
    assert shown_as(QUANTITIES[0], "ms").text.replace("\xa0", " ") == "3,000 ms"
    for form in ("GB", "percent", "TFLOP/s", "furlong"):
        with pytest.raises(UnitError):
            shown_as(QUANTITIES[0], form)


@pytest.mark.parametrize(
    "reference",
    [
        "r1.step_time_s + r1.total_bytes", "r1.step_time_s + 1", "r1.step_time_s / (r1.total_bytes - r1.total_bytes)",
        "r1.step_time_s as GB", "r1.text + r1.step_time_s", "r1.rows", "r1.rows[0]", "r1.rows[7].number",
        "r1.breakdown_s",
        "r1.step_time_s ** 9", "r1.step_time_s if r1.text else 1", "r1.about()", "r1.rows[-1].number", "r9.step_time_s",
        "r1.__class__.__name__", "r1.model_fields.text", "r1." + "(" * 150, "r1.step_time_s * 1e999", "r1.rows[0:1]",
        "r1.step_time_s * " + "9" * 380,
    ],
)  # fmt: skip
def test_what_cannot_be_resolved_is_a_complaint(reference: str) -> None:
    assert complaint(reference)
    assert resolve(f"{{{reference}}}", RESULTS).values == ()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("r1.rows[0].step_time.estimate", "r1.rows[0].step_time_s"), ("r1.computed", "r1.breakdown_s.compute"),
        ("r1.breakdown_s.ici_tensor", "r1.breakdown_s.ici_model"), ("r1.proposals[0].mfu", "r1.rows[0].mfu"),
    ],
)  # fmt: skip
def test_a_wrong_path_comes_back_with_the_nearest_that_exist(wrong: str, right: str) -> None:
    assert right in complaint(wrong)
    one(right)


# Quotations and digits


def refused(typed: Typed, text: str) -> list[Found]:
    return [found for found in typed.found(text) if isinstance(found[2], str)]


def test_a_quotation_must_occur_in_what_it_quotes() -> None:
    assert one('r1.rows[0] "850 GB/s"').value == "850 GB/s"
    assert one('r1.rows[0].note "850 GB/s"').origin == "stated"
    assert "851" in complaint('r1.rows[0] "851 GB/s"')


TYPED = Typed(
    [
        "Can we keep batch 128 and 2,048 chips with tp 8, 20 percent free, for 300B tokens at $4.20?",
        "Is it like Llama 3 8B, Llama 3.1 405B, Mixtral 8x7B, a 13B or GPT-3 175B on V100 or v5e, with all-reduce.12?",
    ],
    RESULTS,
    [{"mesh": {"ici": {"data": 32}}}],
)


@pytest.mark.parametrize(
    "text",
    [
        "Batch 128 on 2048 chips.", "Proposals 1 and 2 differ.", "1. First\n2. Second", "The 80 % interval.",
        "`fsdp=16, tensor 4` or `data: 32` on v5e.", "{r1.step_time_s as ms} at r1",
        "A 3-D torus.", "`fsdp` of 16 and `tensor` 4", "fsdp 16 · tensor 4",
        "{r1.breakdown_s.compute} at 80 % confidence", "2,048 chips hold a global batch of 128.",
        "From tensor 4 to tp 8.",
        "It may fill 20 % on 300 billion tokens.", "Two of the three halve it: eight shards.", "At $4.20 it pays.",
        "**1. Flags**",
        "Llama 3 8B, Llama 3.1 405B and Mixtral 8x7B", "GPT-3 175B on V100", "a 13B model", "1F1B",
        "The 2nd stage.", "ZeRO-3 and all-reduce.12", "## 1. Why", "It takes {r1.rows[0].step_time_s} in proposal 1.",
    ],
)  # fmt: skip
def test_digits_that_need_no_reference_pass(text: str) -> None:
    assert resolve(text, RESULTS, TYPED).complaints == ()


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("It takes 1,423 ms.", "1,423"), ("It is 2.3x faster.", "2.3x"), ("MFU is 40 %.", "40"),
        ("`fsdp=64`", "fsdp=64"),
        ("`0.478`", "0.478"), ("- 56.1 % is exposed", "56.1"), ("| a | 0.63 |", "0.63"), ("`tensor=16`", "tensor=16"),
        ("Proposal 1, 630 ms", "630"), ("saves 32.9GB", "32.9GB"), ("A step 630 ms long", "630"),
        ("about 1e9 bytes", "1e9"), ("fusion.1200 ms", "1200"), ("twenty-4 percent", "4"), ("128 % of it", "128"),
        ("8 times as fast", "8"), ("four-way", "four"),
        ("80 % of the speed", "80"), ("step 3.2 s", "3.2"), ("finding #2.31", "2.31"),
        ("a batch of 64", "64"), ("batch 16 is better", "16"), ("a chance of 95 %", "95"), ("roughly 120ms", "120ms"),
        ("Llama 3 8B takes 8 GB", "8"), ("in 2024 steps", "2024"), ("tp 64", "tp 64"), ("70B tokens", "70B"),
        ("`global_batch_size_per_step=96`", "96"), ("JAX 12 ms", "12"),
        ("48 chips", "48"), ("`ici_tensor_parallelism=16`", "16"),
        ("fsdp 16 and tp 8", "fsdp 16 and tp 8"),
        ("20 s", "20"),
        ("a 24-way tensor axis", "24"), ("½ of it", "½"), ("between 30-40 chips", "30-40"),
        ("Core 6 waits.", "6"), ("Finding, number 7", "7"),
        ("A 4-way tensor axis.", "4"), ("CUDA 12.4", "12.4"), ("6 FLOPs", "6"),
        ("micro_batch 2", "micro_batch 2"), ("The number is\n\n48. That is low.", "48"), ("trained in mxfp4", "mxfp4"),
        ("up to ten seconds", "ten"), ("Ten of them", "Ten"),
        ("eleven experts", "eleven"), ("top-1 routing", "top-1"), ("DeepSeek V2", "V2"), ("a tenth of it", "tenth"),
        ("two seconds", "two seconds"), ("tenfold", "tenfold"), ("two thirds of it", "thirds"),
        ("by nineteen", "nineteen"), ("for $8", "8"),
    ],
)  # fmt: skip
def test_other_digits_are_refused(text: str, digits: str) -> None:
    (found,) = resolve(text, RESULTS, TYPED).complaints
    assert digits in found.message and digits in text[found.start : found.end]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("`fusion.3` waits.", "`fusion.4` waits."),
        ("`custom-call.12` waits.", "`custom-call.1` waits."),
        ("It is an H100.", "It is a B300."),
        ("Llama 3.1 8B", "Llama 3.1 70B"), ("Llama-3.1 8B", "Llama 3 8B"),
        ("NeMo 26.08 prints it.", "NeMo 26.06 prints it."),
        ("It says `its links reach at most 45.0 GB/s`.", "They reach `45.0 GB/s`."),
        ("A global batch of 256.", "A global batch of 64."), ("On a v5p-512.", "On a v5p-256."),
        ("It follows arXiv 2511.03844.", "It follows arXiv 2407.21783."), ("We keep TP4.", "We keep TP2."),
        ("CPU:7 waits.", "CPU:6 waits."),
    ],
)  # fmt: skip
def test_settings_and_names_are_known_ones(right: str, wrong: str) -> None:
    run = {"global_batch": 256, "model": "Llama 3.1 8B"}
    told = {"note": "NeMo 26.08 on H100, its links reach at most 45.0 GB/s", "op": "fusion.3"}
    told |= {"slice": "v5p-512", "paper": "arXiv 2511.03844", "mesh": "tp 4", "core": "CPU:7"}
    told |= {"other": "custom-call.12"}
    typed = Typed(results={"r1": run | told})
    assert not refused(typed, right) and len(refused(typed, wrong)) == 1


def test_a_typed_number_is_printed_with_what_it_is_of() -> None:
    proposals = [
        {"mesh": "data 2 · model 2", "changes": {"global_batch": size}, "_about": about("predicted", f"proposal {n}")}
        for n, size in ((1, 8), (2, 16))
    ]
    results = {"r1": {"proposals": proposals}}
    text = "It runs on 4 chips; proposal 2 sets `global_batch` to `16` on data 2 · model 2."
    printed = resolve(text, results, Typed(["Would 4 chips do?"], results))
    assert printed.plain == text.replace("`global_batch`", "`global_batch`") and printed.complaints == ()
    assert [(value.text, value.subject) for value in printed.values] == [
        ("4", "stated in this conversation"), ("2", "proposal 2"), ("16", "proposal 2 · changes global batch"),
        ("data 2 · model 2", "proposal 1 · mesh"),
    ]  # fmt: skip
    assert 'data-of="proposal 2 · changes global batch"' in printed.html()


def test_settings_around_a_reference_and_behind_a_number_are_read_by_themselves() -> None:
    results = {"r1": {"step_time_s": 2.0, "changes": {"grad_accum": 128}}}
    typed = Typed(["Is a rate of 3e-4 right for batch 8?"], results)
    printed = resolve("for each one: {r1.step_time_s} at grad_accum 128, a rate of 3e-4 and batch 8", results, typed)
    assert printed.complaints == ()
    assert printed.plain.replace("\u00a0", " ") == (
        "for each one: 2.00 s at grad_accum 128, a rate of 3e-4 and batch 8"
    )


def test_a_part_of_one_section_alone_is_found_and_settings_print_as_a_whole() -> None:
    assert one("r1.compute") == one("r1.breakdown_s.compute")
    assert refused(Typed(results={"r1": {"hlo": "bf16[512,36864]"}}), "It is 36864 wide.")
    changed = {"rows": [{"changes": {"remat": "none", "global_batch": 16}}]}
    assert resolve("{r1.rows[0].changes}", {"r1": changed}).plain == "remat none · global_batch 16"


def test_what_is_complained_of_goes_with_its_sentence_alone() -> None:
    text = (
        "It takes {r1.step_time_s}. It could be 999 ms. Keep {r1.mesh}.\n\n- right {r1.mesh}\n- wrong 77\n\n"
        "| a | b |\n|---|---|\n| x | {r1.step_time_s} |\n| y | 55 |"
    )
    left, gone = without_sentences(text, resolve(text, RESULTS, TYPED).complaints)
    assert resolve(left, RESULTS, TYPED).complaints == () and gone == 3
    assert left == (
        "It takes {r1.step_time_s}. Keep {r1.mesh}.\n\n- right {r1.mesh}\n\n"
        "| a | b |\n|---|---|\n| x | {r1.step_time_s} |"
    )


def test_a_plain_number_may_have_a_unit() -> None:
    run = {"tokens_per_step": 4096, "step_time_s": 2.0, "chips": 8}
    for reference, shown in (
        ("4096e6 tokens / r1.tokens_per_step as count", "1,000,000"),
        ("4096e6 tokens / r1.tokens_per_step * r1.step_time_s as days", "23.1 days"),
        ("r1.step_time_s * 1800 * r1.chips * 1.5 usd / 1 h as usd", "$12.00"),
        ("r1.step_time_s + 1 min", "62.0 s"),
    ):
        rendered = resolve(f"{{{reference}}}", {"r1": run})
        assert not rendered.complaints, rendered.complaints
        assert rendered.plain.replace("\u00a0", " ") == shown
    (found,) = resolve("{4096e6 tokens * r1.step_time_s as days}", {"r1": run}).complaints
    assert "days" in found.message


def test_numbers_that_differ_are_printed_differently() -> None:
    run = {"a_s": 32.02, "b_s": 31.58, "c_s": 31.58, "d_s": 12.0, "_about": {"origin": "predicted"}}
    printed = resolve("{r1.a_s} against {r1.b_s} and {r1.c_s}, not {r1.d_s}", {"r1": run}).plain
    assert printed.replace("\u00a0", " ") == "32.0 s against 31.6 s and 31.6 s, not 12 s"


def test_a_unit_that_is_printed_is_not_printed_twice() -> None:
    run = {"tokens_per_step": 8192, "a_s": 1.5, "a_share": 0.25}
    text = "{r1.tokens_per_step} tokens in {r1.a_s} s, {r1.a_share} % of it; {r1.a_s} steps"
    printed = resolve(text, {"r1": {**run, "tokens_per_step": 8192}}).plain.replace("\u00a0", " ")
    assert printed.count("tokens") == 1 and printed.count("%") == 1 and printed.endswith("1.50 s steps")


def test_an_escaped_line_break_in_a_quotation_is_a_space() -> None:
    assert resolve('{r1.text "first\\nsecond"}', {"r1": {"text": "the first\nsecond line"}}).plain == "first second"


def test_a_key_with_a_point_is_read_as_it_is_printed() -> None:
    assert resolve("{r1.assumed.model.layers}", {"r1": {"assumed": {"model.layers": 48}}}).plain == "48"


def test_an_open_brace_is_complained_of() -> None:
    (found,) = resolve("The chips hold {r1.total_bytes as GB.", RESULTS, TYPED).complaints
    assert "closing brace" in found.message


def test_a_key_may_be_a_word_of_a_programs_grammar() -> None:
    assert resolve("{r1.profile.from}", {"r1": {"profile": {"from": "measured"}}}).plain == "measured"


def test_arithmetic_of_known_sizes_is_printed_and_no_braces_of_numbers_are_words() -> None:
    typed = Typed(["batch 512 on 16 replicas"], {"r1": {"chips": 64}})
    assert resolve("{512 / 16 as count} each", {}, typed).plain == "32 each"
    for own in ("{437 * 1}", "{64 * 0.37 as percent}", "{37 tokens * 2 as count}"):
        assert resolve(own, {"r1": {"chips": 64}}, typed).complaints, own


def test_numbers_of_what_was_supposed_and_of_a_title_pass() -> None:
    facts = [{"facts": {"model.d_model": 16384, "training.global_batch": 768}}]
    typed = Typed(["Would 30-40 chips do, as for Qwen3 235B?"], {"r1": {"title": "NVIDIA H100 80 GB"}}, facts)
    for text in ("At batch 768.", "30-40 chips", "Qwen3 235B"):
        assert resolve(text, {}, typed).complaints == (), text
    for text in ("It frees 80 GB.", "A width of 8,192.", "The mesh is `data=16384`."):
        assert resolve(text, {}, typed).complaints, text


# What a page shows


class Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_shows_each_value_with_subject_origin_and_link() -> None:
    rendered = resolve("**{r1.rows[0].step_time_s}** of {r1.step_time_s}", RESULTS)
    page = Elements(rendered.html(lambda target: f"/x/{target}/"))
    (predicted, measured) = [attributes for tag, attributes in page.found if tag == "a"]
    assert predicted["class"] == "nb p" and predicted["href"] == "/x/proposal:1/"
    assert predicted["data-of"] == "proposal 1 · step time" and predicted["data-origin"] == "predicted"
    assert measured["class"] == "nb" and measured["data-origin"] == "measured"
    unlinked = [attributes for tag, attributes in Elements(rendered.html()).found if tag == "span"]
    assert any(attributes.get("tabindex") == "0" for attributes in unlinked)


@pytest.mark.parametrize(
    "text",
    [
        "{r1.rows[1].note}", "`{r1.rows[1].note}`", "[x](/y '{r1.rows[1].note}')",
        "| {r1.rows[1].note} |\n|---|\n| x |",
        "```\n{r1.rows[1].note}\n```", "[{r1.rows[1].note}](/y)", "# {r1.rows[1].note}", HOSTILE,
    ],
)  # fmt: skip
def test_hostile_text_stays_text(text: str) -> None:
    page = Elements(resolve(text, {"r1": RUN}).html(lambda target: "javascript:" if not target else f"/{target}"))
    allowed = {"p", "code", "a", "span", "table", "thead", "tbody", "tr", "th", "td", "div", "pre", "strong"}
    assert {tag for tag, _ in page.found} <= allowed
    for _, attributes in page.found:
        assert not any(name.startswith("on") for name in attributes)
        assert not (attributes.get("href") or "").startswith("javascript")


def test_stored_values_are_shown_without_their_results() -> None:
    rendered = resolve("{r1.rows[0].step_time_s}, {r1.total_bytes / 2 as GB}: {r1.rows[1].note}", RESULTS)
    data: Any = json.loads(json.dumps(rendered.to_json()))
    again = Rendered.from_json(data)
    assert again.plain == rendered.plain and again.html() == rendered.html() and again.values == rendered.values


def test_brackets_written_as_entities_name_no_value() -> None:
    html = resolve("{r1.total_bytes} `{r1.total_bytes}` &#8261;7&#8262; <b>", RESULTS).html()
    assert html.count("32.9") == 2 and html.count("data-of") == 2 and "&lt;b&gt;" in html and "7" not in html
