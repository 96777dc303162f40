"""What is written reads back unchanged; what is wrong is said by row and column."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formatting.cells import guarded, unguarded
from history.reading import read_row
from history.record import BOTTLENECKS, CHANGES, FAILURES, PROVENANCES, RECORD, Record, Side, outcome_of
from history.services import formats
from history.services.formats import FileError
from tests.history.records import record

text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=25)
titles = text.filter(lambda t: t.strip())
finite = st.floats(-1e15, 1e15)
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
values = st.one_of(st.integers(-(10**12), 10**12), finite, text, st.booleans(), st.none(), st.lists(text, max_size=3))
meshes = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "ici": st.dictionaries(st.sampled_from(["data", "fsdp", "seq", "model", "replica"]), st.integers(1, 64)),
        "dcn": st.dictionaries(st.sampled_from(["data", "pipeline"]), st.integers(1, 8)),
    },
)
shares = st.sampled_from(["mfu", "duty_cycle", "communication"])
sides = st.builds(
    Side,
    label=text,
    mesh=meshes,
    axis_roles=st.dictionaries(names, st.sampled_from(["model", "data"]), max_size=2),
    training=st.dictionaries(names, values, max_size=3),
    kpis=st.one_of(
        st.dictionaries(shares, st.floats(0, 1)),
        st.dictionaries(names.filter(lambda n: n not in ("hfu", "idle", "mfu", "input")), finite | text, max_size=3),
    ),
)


#: Models as a record may spell them out.
SHAPES: tuple[dict[str, object], ...] = (
    {}, {"name": "llama3-8b"}, {"layers": 2, "d_model": 64, "d_ff": 256, "heads": 4, "vocab": 1000, "mlp": "plain"},
)  # fmt: skip


@st.composite
def records(draw) -> Record:
    speedup = draw(st.none() | st.floats(0.01, 100))
    failure = draw(st.sampled_from(FAILURES)) if speedup is None and draw(st.booleans()) else ""
    return Record(
        id=draw(titles),
        title=draw(titles),
        change=draw(text),
        changes=tuple(draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3, unique=True))),
        before=draw(sides),
        after=draw(sides),
        outcome="failed" if failure else "faster" if speedup is None else outcome_of(speedup),
        source=draw(titles),
        provenance=draw(st.sampled_from(PROVENANCES)),
        chip=draw(st.sampled_from(["", "v5p", "h100"]) | text),
        chips=draw(st.none() | st.integers(1, 10**6)),
        slices=draw(st.integers(1, 64)),
        model_name=draw(text),
        model_family=draw(text),
        parameters=draw(st.none() | st.floats(1, 1e13)),
        bottleneck=draw(st.sampled_from(BOTTLENECKS)),
        speedup=speedup,
        measure=draw(text),
        effect=draw(text),
        failure=failure,
        caveats=tuple(draw(st.lists(text, max_size=3))),
        licence=draw(text),
        shape=draw(st.sampled_from(SHAPES)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", formats.FORMATS)
@settings(max_examples=30)
@given(st.lists(records(), max_size=4))
def test_what_is_exported_is_imported_unchanged(kind, given_records):
    file = b"".join(formats.write(given_records, kind))
    rows = list(formats.read(io.BytesIO(file), kind))
    assert [row.errors for row in rows] == [()] * len(given_records)
    assert [row.record for row in rows] == given_records
    for row, value in zip(rows, given_records, strict=True):  # the order of axes is their layout
        assert json.dumps(RECORD.write(row.record)) == json.dumps(RECORD.write(value))


@given(text)
def test_no_exported_text_is_a_formula(value):
    assert not guarded(value).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unguarded(guarded(value)) == value


def test_a_spreadsheet_runs_nothing_of_an_export():
    evil = record("=1+1", title='=HYPERLINK("http://x","y")', caveats=("@SUM(A1)",), change="-2+3", effect="+1 %")
    lines = list(csv.reader(io.StringIO(b"".join(formats.write([evil], "csv")).decode())))
    assert all(not cell.startswith(("=", "+", "-", "@")) for cell in lines[1])
    assert next(formats.read(io.BytesIO(b"".join(formats.write([evil], "csv"))), "csv")).record == evil


def read(content: str, kind: str = "csv"):
    return list(formats.read(io.BytesIO(content.encode()), kind))


def test_a_table_typed_by_hand_is_understood():
    (row,) = read(
        "id,title,changes,source,chip,topology,speedup,before.mesh,after.mesh,before.kpis.step_time_s,before.kpis.mfu\n"
        'a,Wider data axis,mesh; remat,our sweep,v5p,8x8x8,1.25,"data=8,model=64",data=64; model=8,3.5,0.41\n'
    )
    assert row.errors == ()
    value = row.record
    assert value.changes == ("mesh", "remat") and value.topology == (8, 8, 8) and value.chips == 512
    assert value.outcome == "faster" and value.provenance == "imported"
    assert value.before.mesh == {"ici": {"data": 8, "model": 64}, "dcn": {}}
    assert value.before.kpis == {"step_time_s": 3.5, "mfu": 0.41}


def test_each_bad_cell_is_named_with_what_to_do():
    rows = read(
        "id,title,changes,source,speedup,chips,before.kpis.mfu,outcome\n"
        "a,Good,mesh,s,1.2,8,0.4,\n"
        'b,Bad,mush,s,"1,2",eight,41,\n'
        ",No id,mesh,s,,,,\n"
        "c,Contradiction,mesh,s,0.8,8,,faster\n"
    )
    assert [row.record is not None for row in rows] == [True, False, False, False]
    said = {(error.row, error.column): error.message for row in rows for error in row.errors}
    assert "'1,2'" in said[3, "speedup"] and "'eight'" in said[3, "chips"]
    assert (3, "outcome") not in said  # the speed-up is there, only not a number
    assert said[4, "id"] == "is missing; every record needs it"
    assert "correct one of them" in said[5, "outcome"]
    assert not [error for row in rows for error in row.errors if "pydantic" in error.message.lower()]


def test_a_percentage_is_told_from_a_share():
    (row,) = read("id,title,changes,source,outcome,before.kpis.duty_cycle\na,t,mesh,s,faster,99.7\n")
    assert [str(error) for error in row.errors] == [
        "row 2, before.kpis.duty_cycle: is 99.7, but is a share from 0 to 1; write 0.997"
    ]


def test_an_unknown_column_is_ignored_and_said():
    (row,) = read("id,titel,title,changes,source,outcome\na,x,t,mesh,s,slower\n")
    assert row.record is not None
    assert row.warnings[0].message == "is not a known column and is ignored; did you mean 'title'?"


@pytest.mark.parametrize(
    ("content", "kind", "sentence"),
    [
        ("alpha,beta\n1,2\n", "csv", "The first line must name the columns"),
        ("id,title,id\n", "csv", "appears twice"),
        ('{"id": 1}', "json", "must be a JSON list"),
        ("", "json", "must be a JSON list"),
        ('[{"id": 1}, {', "json", "is not JSON"),
    ],
)
def test_a_file_of_another_kind_is_refused_as_a_whole(content, kind, sentence):
    with pytest.raises(FileError, match=sentence):
        read(content, kind)


def test_a_file_in_another_encoding_is_refused():
    with pytest.raises(FileError, match="not UTF-8"):
        list(formats.read(io.BytesIO("id,title\né,ö".encode("latin-1")), "csv"))


def test_a_broken_line_is_one_bad_row():
    good = json.dumps(RECORD.write(record("a")))
    rows = read(f"{good}\n{{'id'\n\n{good}\n", "jsonl")
    assert [row.number for row in rows] == [1, 2, 4]
    assert [row.record is not None for row in rows] == [True, False, True]


@given(st.recursive(values, lambda inner: st.dictionaries(names, inner) | st.lists(inner), max_leaves=12))
def test_nothing_that_json_can_hold_breaks_the_reader(value):
    row = read_row(1, value if not isinstance(value, dict) else {**RECORD.write(record("a")), **value})
    assert (row.record is None) == bool(row.errors)


@given(st.dictionaries(st.sampled_from([*RECORD.write(record("a"))]), st.recursive(
    values, lambda inner: st.dictionaries(names, inner) | st.lists(inner), max_leaves=6), max_size=3))  # fmt: skip
def test_wrong_values_become_sentences(changed):
    row = read_row(1, {**RECORD.write(record("a")), **changed})
    assert (row.record is None) == bool(row.errors)
    assert all(error.message and "\n" not in error.message for error in row.errors)


def test_a_shape_that_no_model_has_is_told_by_its_column():
    (row,) = read('id,title,changes,source,outcome,shape\na,t,mesh,s,faster,"{""layers"": 2}"\n')
    assert row.record is None
    assert {error.column for error in row.errors} == {"shape"}
    assert "d_model" in str(row.errors[0])
