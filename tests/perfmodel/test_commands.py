"""`asap predict` and `asap search` as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from asapweb.cli import main

pytestmark = pytest.mark.slow

CONFIG = {
    "name": "llama3.1-8b on v6e-16",
    "hardware": {"chip": "v6e", "topology": [4, 4], "slices": 1},
    "mesh": {"ici": {"replica": 1, "data": 4, "seq": 4, "model": 1}, "dcn": {"data": 1}},
    "model": {"name": "llama3.1-8b"},
    "training": {"global_batch": 32, "seq_len": 8192, "weight_sharding": "fsdp", "remat": "full"},
}


@pytest.fixture
def asap(tmp_path, capsys):
    """Runs the command on configurations; (exit status, stdout, stderr)."""

    def run(command, *options, configs=(CONFIG,)):
        code = main([command, *written(tmp_path, configs), *options])
        return code, *capsys.readouterr()

    return run


def written(folder, configs):
    paths = []
    for number, config in enumerate(configs):
        path = folder / f"config{number}.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        paths.append(str(path))
    return paths


def test_a_process_answers_on_its_standard_output_and_ends_with_the_status(tmp_path):
    (path,) = written(tmp_path, [CONFIG])
    program = "import sys; from asapweb.cli import main; sys.exit(main())"
    for arguments, code in (((path,), 0), ((path, "--mesh", "data=5"), 2)):
        command = [sys.executable, "-c", program, "predict", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout != "", done.stderr != "") == (code, code == 0, code == 2)


def test_predict_answers_the_contract(asap):
    code, out, err = asap("predict", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert set(result["step_time_s"]) == {"lower", "estimate", "upper", "low80", "high80"}
    assert {"compute", "hbm", "ici", "dcn", "bubble", "exposed_comms"} <= set(result["breakdown_s"])
    assert set(result["breakdown_s"]["ici"]) == {"replica", "data", "seq", "model"}
    memory = result["hbm_per_chip_bytes"]
    assert set(memory) == {"params", "optimizer", "gradients", "activations", "total", "capacity"}
    parts = memory["params"] + memory["optimizer"] + memory["gradients"] + memory["activations"]
    assert memory["total"] == pytest.approx(parts)
    assert result["fits"] is True
    assert 0 < result["mfu"] < 1
    assert "causal" in result["mfu_convention"]
    assert result["violations"] == []
    assert result["missing"] == []


def test_a_prediction_says_what_it_assumed(asap):
    config = {
        "hardware": {"chip": "gb200", "topology": [64, 1]},
        "mesh": {"ici": {"fsdp": 64}},
        "model": "llama3-70b",
        "training": {"global_batch": 256, "seq_len": 8192, "precision": "fp8", "micro_batch": 2},
    }
    result = json.loads(asap("predict", "--json", configs=[config])[1])
    assert result["fits"] is True
    assert any(warning.startswith("training.remat is not given") for warning in result["warnings"])


def test_several_files_give_a_list_in_order(asap):
    other = CONFIG | {"name": "second"}
    code, out, _ = asap("predict", "--json", configs=(CONFIG, other))
    assert code == 0
    assert [item["name"] for item in json.loads(out)] == [CONFIG["name"], "second"]
    assert [Path(item["file"]).name for item in json.loads(out)] == ["config0.json", "config1.json"]


def test_one_bad_file_among_several_is_named_and_the_others_are_answered(asap):
    code, out, err = asap("predict", "--json", configs=(CONFIG, "{", CONFIG | {"name": "third"}, {"mesh": {}}))
    assert code == 2
    assert [item["name"] for item in json.loads(out)] == [CONFIG["name"], "third"]
    assert [line.partition(":")[0] for line in err.splitlines()] == ["config1.json", "config3.json"]


def test_nothing_is_answered_when_every_file_is_bad(asap):
    code, out, err = asap("predict", "--json", configs=("{", "["))
    assert (code, out, err.count("\n")) == (2, "", 2)


def test_another_mesh_from_the_command_line(asap):
    code, out, _ = asap("predict", "--json", "--mesh", "data=16")
    assert code == 0
    assert json.loads(out)["mesh"]["ici"] == {"data": 16}


def test_a_broken_rule_is_an_answer_not_an_error(asap):
    code, out, _ = asap("predict", "--json", "--mesh", "model=16")
    result = json.loads(out)
    assert code == 0
    assert [violation["rule"] for violation in result["violations"]][:1] == ["kv_heads"]
    assert result["step_time_s"]["estimate"] > 0


def test_partial_information_gives_a_partial_answer(asap):
    bare = {key: CONFIG[key] for key in ("hardware", "mesh", "model")}
    code, out, _ = asap("predict", "--json", configs=(bare,))
    result = json.loads(out)
    assert code == 0
    assert result["missing"] == ["training.global_batch", "training.seq_len"]
    assert result["step_time_s"] is None
    assert result["hbm_per_chip_bytes"]["params"] > 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mesh": {"ici": {"data": 5}}}, "mesh.ici"),
        ({"hardware": {"chip": "v9", "topology": [4, 4]}}, "hardware.chip"),
        ({"model": {"name": "llama9"}}, "model"),
        ({"training": {"global_batch": -1}}, "training.global_batch"),
        ({"training": {"seq_len": 0}}, "training.seq_len"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "search"])
def test_bad_input_is_one_line_that_names_the_field(asap, command, change, field):
    code, out, err = asap(command, "--json", configs=(CONFIG | change,))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert len(err) <= 301
    assert field in err


def test_nan_is_refused(asap):
    text = json.dumps(CONFIG).replace("32", "NaN")
    code, out, err = asap("predict", "--json", configs=(text,))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_search_ranks_legal_candidates(asap):
    code, out, err = asap("search", "--json", "--top", "4")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert len(result["candidates"]) == 4
    for candidate in result["candidates"]:
        sizes = candidate["mesh"]["ici"].values()
        assert candidate["fits"] and not candidate["violations"]
        product = 1
        for size in sizes:
            product *= size
        assert product == 16
    assert result["considered"] >= len(result["candidates"]) + len(result["rejected"])
    assert all(set(rejection) == {"mesh", "rule"} for rejection in result["rejected"])


def test_search_needs_a_whole_number(asap):
    code, out, err = asap("search", "--top", "many")
    assert (code, out) == (2, "")
    assert "--top" in err


BASELINE = CONFIG | {"name": "the run", "measured": {"step_time_s": 3.2, "peak_memory_bytes": 25e9}}


def test_candidates_are_priced_from_a_baseline(asap, tmp_path):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(BASELINE))
    plain = json.loads(asap("predict", "--json")[1])
    other = CONFIG | {"name": "dp", "mesh": {"ici": {"data": 16}}}
    code, out, err = asap("predict", "--from", str(baseline), "--json", configs=(CONFIG, other))
    assert (code, err) == (0, "")
    same, found = json.loads(out)
    assert [same["name"], found["name"]] == [CONFIG["name"], "dp"]
    assert set(plain) < set(same) and set(same) - set(plain) == {"calibrated_from", "model_alone", "file"}
    assert same["step_time_s"]["estimate"] == pytest.approx(3.2)
    assert same["hbm_per_chip_bytes"]["total"] == pytest.approx(25e9)
    assert found["step_time_s"]["low80"] < found["step_time_s"]["estimate"] < found["step_time_s"]["high80"]
    assert found["calibrated_from"]["name"] == "the run" and found["calibrated_from"]["step_time_s"] == 3.2
    assert found["calibrated_from"]["speedup"]["estimate"] == pytest.approx(3.2 / found["step_time_s"]["estimate"])


def test_the_measured_run_itself_is_as_measured_beside_what_the_model_says_alone(asap):
    own = json.loads(asap("predict", "--json", configs=(BASELINE,))[1])
    assert own["step_time_s"]["estimate"] == pytest.approx(3.2) and own["calibrated_from"]["step_time_s"] == 3.2
    assert own["model_alone"]["step_time_s"] == json.loads(asap("predict", "--json")[1])["step_time_s"]
    other = json.loads(asap("predict", "--json", "--mesh", "data=16", configs=(BASELINE,))[1])
    assert other["calibrated_from"]["step_time_s"] == 3.2 and "model_alone" not in other


def test_a_search_is_calibrated_where_a_step_time_was_measured(asap):
    code, out, _ = asap("search", "--top", "2", "--json", configs=(BASELINE,))
    found = json.loads(out)
    assert code == 0 and found["calibrated_from"]["step_time_s"] == 3.2
    assert all(item["calibrated_from"]["name"] == "the run" for item in found["candidates"])


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        (CONFIG, "measured.step_time_s: is missing"),
        (BASELINE | {"measured": {"peak_memory_bytes": 25e9}}, "measured.step_time_s: is missing"),
        (BASELINE | {"measured": {"step_time_s": 1e-3}}, "at the peak of 16 v6e"),
        (BASELINE | {"measured": {"step_time_s": "3"}}, "must be a number"),
        (BASELINE | {"measured": {"step_time_s": 3, "peak_memory_bytes": 25}}, "give bytes per chip"),
        (BASELINE | {"measured": 3}, "must be a mapping"),
        ({key: value for key, value in BASELINE.items() if key != "model"}, "model: is missing"),
        ("no: [configuration", ""),
    ],
)
def test_a_baseline_that_cannot_calibrate_is_one_sentence(asap, tmp_path, baseline, words):
    path = tmp_path / "baseline.json"
    path.write_text(baseline if isinstance(baseline, str) else json.dumps(baseline))
    for arguments in (("--from", str(path)), ("--from", str(path), "--json")):
        code, out, err = asap("predict", *arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1 and len(err) <= 301 and words in err


def test_an_unknown_key_of_the_measured_block_is_a_warning(asap):
    config = BASELINE | {"measured": {"step_time": 3.2}}
    found = json.loads(asap("predict", "--json", configs=(config,))[1])
    assert any("measured.step_time" in line and "step_time_s" in line for line in found["warnings"])
