"""Published rows as configurations: what the frameworks' words mean in ours."""

import json

import pytest

from evaluation.published import RUNS_FILE, UnmappedError, load_published, map_row, maxtext_flops_per_token
from evaluation.time_rows import load_rows
from perfmodel.config_file import all_errors, config_to_json

ROWS = {row["id"]: row for row in json.loads(RUNS_FILE.read_text(encoding="utf-8"))}


def run(row_id):
    return map_row(ROWS[row_id])


def test_every_row_is_mapped_or_listed_with_a_reason():
    published = load_published()
    assert {r.id for r in published.runs} | set(published.unmapped) == set(ROWS)
    assert not {r.id for r in published.runs} & set(published.unmapped)
    assert all(published.unmapped.values())
    assert len(published.runs) > 250


def test_every_mapped_row_is_a_legal_configuration_that_survives_json():
    for mapped in load_published().runs:
        assert all_errors(json.loads(json.dumps(config_to_json(mapped.config)))) == []
        assert mapped.step_time_s > 0


def test_an_ironwood_chip_is_two_devices_and_one_chip():
    """b009: 128 devices, data 2 by fsdp 64, on 64 chips: both devices of a chip lie on the inner axis."""
    mapped = run("b009")
    assert mapped.config.hardware.chips == 64
    assert mapped.config.mesh.ici == (("replica", 2), ("fsdp", 32))
    assert mapped.config.training.global_batch == 1280


def test_maxtexts_minus_one_takes_what_is_left_and_its_data_axis_replicates():
    mapped = run("b004")
    assert mapped.config.mesh.size("replica") == 4
    assert mapped.config.mesh.size("fsdp") == 16


def test_slices_lie_on_dcn():
    mapped = run("b063")
    assert mapped.config.hardware.slices == 16
    assert mapped.config.mesh.dcn == (("data", 16),)
    assert mapped.config.hardware.chips == 4096


def test_megatrons_words():
    """b150: 256 GB300, TP 2 PP 8 CP 2 VP 4, 1536 sequences in micro-batches of one."""
    config = run("b150").config
    assert config.mesh.ici == (("pipeline", 8), ("data", 8), ("context", 2), ("model", 2))
    assert config.training.grad_accum == 1536 // 8
    assert config.training.virtual_stages == 4
    assert config.training.precision == "mxfp8"
    assert config.training.weight_sharding == "zero1"
    assert config.hardware.topology == (64, 4)
    assert config.extra["software_year"] == pytest.approx(2026 + 5 / 12)


def test_experts_span_the_data_ranks_and_the_tensor_axis_shards_the_rest():
    """b131: EP 64 on 64 GPUs with TP 2: 32 data ranks carry experts, the tensor axis halves each."""
    mesh = run("b131").config.mesh
    assert mesh.size("expert") == 32
    assert mesh.size("model") == 2


def test_tflops_become_step_time_by_maxtexts_own_count():
    """Rows that publish both agree with MaxText's count of before its pull request 1988 to a tenth of a percent."""
    checked = 0
    for mapped in load_published().runs:
        convention = mapped.row["flops_convention"] or ""
        if mapped.row["step_time_s"] and mapped.row["tflops_per_chip"] and convention.startswith("full_noncausal"):
            tokens = mapped.config.training.global_batch_tokens / mapped.config.hardware.chips
            count = maxtext_flops_per_token(mapped.shape, mapped.config.training.seq_len)
            assert count * tokens / mapped.step_time_s == pytest.approx(mapped.row["tflops_per_chip"] * 1e12, rel=2e-3)
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize(("row_id", "word"), [("b180", "sft"), ("b021", "diffusion"), ("b403", "planner")])
def test_rows_that_cannot_be_used_say_why(row_id, word):
    with pytest.raises(UnmappedError, match=word):
        run(row_id)


def test_what_nvidias_scripts_say_has_a_source_and_known_words():
    with_settings = [row for row in ROWS.values() if "settings" in row]
    bridge = [row for row in ROWS.values() if row["framework"] == "Megatron-Bridge" and row["kind"] == "llm-pretrain"]
    assert len(with_settings) >= 0.9 * len(bridge)
    for row in with_settings:
        source, settings = row["settings_source"], row["settings"]
        assert len(source["commit"]) == 40 and source["path"] and source["tag"].startswith("v")
        assert settings["cuda_graphs"] in ("none", "partial", "layer", "full_iteration")
        assert ("cuda_graph_modules" in settings) == (settings["cuda_graphs"] == "partial")
        assert settings.get("moe_dispatcher", "alltoall") in ("alltoall", "deepep", "hybridep")
        assert ("recompute_modules" in settings) == (settings.get("recompute") == "selective")
        assert ("tp_comm_overlap" in settings) == ((row["parallelism"].get("tp") or 1) > 1)
        if set(source["differs"]) & {"micro_batch", "vp", "ep"}:
            assert not {"recompute", "fsdp", "activation_offload_layers"} & set(settings)


def test_dense_models_dispatch_no_tokens_and_mixtures_do():
    for mapped in load_published().runs:
        if mapped.settings:
            assert ("moe_dispatcher" in mapped.settings) == mapped.mixture


def test_the_remat_policy_is_what_the_script_recomputes():
    """b149, Llama 3.1 405B: nothing; b241, Llama 3 70B: activations go to the host, so nobody says what is kept."""
    assert ROWS["b149"]["settings"]["recompute"] == "none" and run("b149").config.training.remat == "none"
    assert ROWS["b241"]["settings"]["activation_offload_layers"] > 0
    assert run("b241").config.extra.get("remat_open")
    assert not run("b149").config.extra.get("remat_open")
    minimal = [r for r in load_published().runs if r.settings.get("recompute_modules") == ["mla_up_proj"]]
    assert minimal and all(r.config.training.remat == "minimal" for r in minimal)


def test_outputs_that_a_custom_policy_keeps_are_not_fitted_as_recomputed():
    """b013 keeps q, k, v and the attention; b035 moves them and the output projection to the host with layer inputs."""
    rows = {row.id: row for row in load_rows("tpu")}
    assert (rows["b013"].config.training.remat, rows["b035"].config.training.remat) == ("full", "offload")
    d, kv, ff = 8192, 1024, 28672  # Llama 3.1 70B; of the MLP two of three products are computed again
    assert rows["b013"].repeated == (pytest.approx((d + 2 * ff) / (2 * d + 2 * kv + 2 * ff)), 0.0)
    d, kv, ff = 4096, 1024, 14336
    assert rows["b035"].repeated == (pytest.approx(2 * ff / (2 * d + 2 * kv + 2 * ff)), 1.0)
    assert rows["b000"].repeated == (1.0, 1.0)


def test_fully_sharded_weights_where_a_table_has_no_column_for_them():
    row = ROWS["b149"]
    assert "fsdp" not in row["parallelism"] and run("b149").config.training.weight_sharding == "zero1"
    sharded = map_row(row | {"settings": row["settings"] | {"fsdp": True}}).config
    assert sharded.training.weight_sharding == "fsdp" and sharded.mesh.size("fsdp") > 1
    printed = row | {"parallelism": row["parallelism"] | {"fsdp": 0}, "settings": row["settings"] | {"fsdp": True}}
    assert map_row(printed).config.training.weight_sharding == "zero1"
