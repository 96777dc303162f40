"""Check what trials of flags tell of a run: sign, size, and when nothing is said."""

from dataclasses import replace

import pytest

from history.effects import Effects, Situation
from history.record import Record, Side, outcome_of
from history.seeds import records
from perfmodel.known_flags import settings

LLAMA = Situation("v6e", ("jax", "llama3.1-8b"), 8192.0, frozenset({"data"}))
OTHER = Situation("v6e", ("maxtext", "llama3.1-70b"), 8192.0, frozenset({"data"}))
SHIPPED = {record.id: record for record in records()}


@pytest.fixture(scope="module")
def shipped() -> Effects:
    return Effects(records(), "v6e")


def flags_of(key: str, side: str = "after") -> list[str]:
    return list(getattr(SHIPPED[key], side).training["xla_flags"])


def trial(key: str, ratio: float, before: object, after: object, stack: str = "a", seq_len: int = 8192) -> Record:
    mesh, shared = {"ici": {"fsdp": 8}, "dcn": {}}, {"seq_len": seq_len, "software": stack}
    sides = [Side(f"{key}{n}", mesh, {}, {**shared, "xla_flags": each}) for n, each in enumerate((before, after))]
    return Record(key, key, key, ("xla_flags",), *sides, outcome=outcome_of(1 / ratio), source="s", chip="v6e",
                  speedup=1 / ratio, measure="m")  # fmt: skip


def test_recipe_and_collective_matmul_are_offered_where_they_are_not_set(shipped: Effects) -> None:
    found = shipped.offers(flags_of("trial-jx-l3-0426-e12", "before"), LLAMA)
    recipe, matmul = found[:2]
    assert settings(recipe[0], "v6e") == settings(flags_of("trial-jx-l3-0426-e12"), "v6e")
    assert recipe[1].ratio == pytest.approx(0.90, abs=0.01) and recipe[1].whole == 1 and recipe[1].stacks >= 2
    assert "--xla_tpu_all_gather_collective_matmul_mode=none" in matmul[0]
    assert 0.88 < matmul[1].ratio < 0.93 and len(matmul[1].trials) == 2


def test_sparsecore_offload_is_offered_beside_the_recipe_but_not_in_short_sequences(shipped: Effects) -> None:
    recipe = flags_of("trial-jx-l3-0426-e12")
    (flags, effect), *_ = shipped.offers(recipe, OTHER)
    assert "--xla_tpu_enable_sparse_core_collective_offload_reduce_scatter=true" in flags
    assert 0.96 < effect.ratio < 0.99 and effect.measured < 1.0
    assert shipped.offers(recipe, Situation("v6e", OTHER.stack, 1024.0, OTHER.roles)) == []


def test_every_offer_gained_in_its_median_trial_and_names_its_records(shipped: Effects) -> None:
    for key in ("trial-jx-l3-0426-e12", "trial-cx-q3-0604-v116", "trial-cx-q3-0605-v205", "trial-tx-g4-0423-exp13"):
        for where in (LLAMA, OTHER):
            for _, effect in shipped.offers(flags_of(key, "before"), where):
                assert effect.measured < 1.0 and effect.ratio < 1.0 and len(effect.trials) >= 2


def test_nothing_is_said_of_what_was_measured_once_or_on_another_chip(shipped: Effects) -> None:
    assert shipped.of([], ["--xla_tpu_use_enhanced_launch_barrier=true"], LLAMA) is None
    assert shipped.of([], ["--xla_tpu_never_heard_of=true"], LLAMA) is None
    assert Effects(records(), "v5p").offers([], Situation("v5p", OTHER.stack, 8192.0, OTHER.roles)) == []


def test_a_dropped_flag_tells_of_one_that_is_set_and_effects_shrink_towards_none() -> None:
    both = [trial("x", 0.9, [], ["--xla_f=true"]), trial("y", 1 / 0.9, ["--xla_f=true"], [])]
    effect = Effects(both, "v6e").of([], ["--xla_f"], Situation("v6e", ("a", ""), 8192.0, frozenset({"data"})))
    assert effect is not None and 0.9 < effect.ratio < 0.95 and effect.measured == pytest.approx(0.9)
    elsewhere = Effects(both, "v6e").of([], ["--xla_f"], Situation("v6e", ("b", ""), 8192.0, frozenset({"data"})))
    assert elsewhere is not None and effect.ratio < elsewhere.ratio < 1.0


def test_a_flag_that_helps_alone_and_hurts_in_a_set_is_told_apart() -> None:
    where = Situation("v6e", ("a", ""), 8192.0, frozenset({"data"}))
    others = [f"--xla_o{n}=true" for n in range(8)]
    found = Effects(
        [trial("alone", 0.98, [], ["--xla_f=true"]), trial("again", 0.98, ["--xla_z=1"], ["--xla_f=true", "--xla_z=1"]),
         trial("set", 1.02, others, [*others, "--xla_f=true"]),
         trial("set again", 1.02, [*others, "--xla_z=1"], [*others, "--xla_f=true", "--xla_z=1"])], "v6e"
    )  # fmt: skip
    alone, within = found.of([], ["--xla_f"], where), found.of(others, [*others, "--xla_f"], where)
    assert alone is not None and within is not None and alone.ratio < 1.0 < within.ratio


def test_older_names_of_collective_matmul_are_the_newer_ones() -> None:
    old = settings(["--xla_jf_spmd_threshold_for_windowed_einsum_mib=1000000"], "v6e")
    modes = ("all_gather", "reduce_scatter")
    assert old == settings([f"--xla_tpu_{mode}_collective_matmul_mode=none" for mode in modes], "v6e")


def test_own_measurements_say_all_that_they_set() -> None:
    mine = [replace(trial(str(n), 0.95, [], ["--xla_f"]), provenance="measured") for n in range(2)]
    bare = replace(mine[0].before, training={"seq_len": 8192})
    mine = [replace(record, before=bare) for record in mine]
    effects = Effects(mine, "v6e")
    ((flags, effect),) = effects.offers(["--xla_g"], Situation("v6e", ("", ""), 8192.0, frozenset({"data"})))
    assert flags == ("--xla_g", "--xla_f") and 0.95 < effect.ratio < 0.99
    assert Effects([replace(record, provenance="published") for record in mine], "v6e").trials == []


@pytest.mark.parametrize(
    "written",
    ["--xla_a=true --xla_b=3", {"xla_a": True, "xla_b": 3}, ["--xla_a=true --xla_b=3"], [7, "--xla_a", {"xla_b": 3}]],
)
def test_sets_are_read_however_an_import_writes_them(written: object) -> None:
    both = [trial(str(n), 0.9, [], written) for n in range(2)]
    ((flags, _),) = Effects(both, "v6e").offers((), Situation("v6e", ("a", ""), 8192.0, frozenset({"data"})))
    assert flags == ("--xla_a=true", "--xla_b=3")
