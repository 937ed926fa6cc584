"""What to do about a slow run: the right thing first, with a gain that holds and a command that works."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from stoker import api, cli, runs, settings
from stoker.machine import calibration
from stoker.machine.evidence import Evidence
from stoker.machine.remedies import ordered, remedies
from stoker.machine.remedy import Remedy, elsewhere
from tests.machine.made_up import evidence, ledger, over_a_slow_link, starved, with_a_slow_one

BUSY = {"data_wait": 0.0, "compute": 0.4, "optimizer": 0.02, "host": 0.0}
LARGE = {"train_samples": 64_000, "train_bytes": 64_000 * 110_000}
LATE = {**BUSY, "compute": 0.1, "host": 0.1}
MEASURED = {"gpus": [{"matmul_flops": {"tf32": 4e14, "bf16": 8e14}}]}
H200 = {"cores": {"allotted": 8}, "gpus": [{"memory_bytes": 100}], "measured": MEASURED}
OLDER = {"gpus": [{"matmul_flops": {"fp32": 1.4e13, "fp16": 9e13, "bf16": None}}]}
V100 = {"cores": {"allotted": 8}, "measured": OLDER}
SAVING = {**BUSY, "checkpoint": 0.4}


def found(known: Evidence) -> dict[str, Remedy]:
    """The remedies of a run, by the flag or the command that they come down to."""
    model = calibration.model(known)
    assert model is not None
    return {key_of(remedy.command): remedy for remedy in remedies(known, model)}


def key_of(command: str) -> str:
    words = shlex.split(command)
    if "train" not in words:
        return " ".join(words[1:3])
    flags = words[words.index("--name") + 2 :]
    return "pack" if "pack" in words else " ".join(flags[:2] if len(flags) > 1 else flags)


def first(known: Evidence) -> str:
    return next(iter(found(known)))


EVERY = {
    "threads": evidence(starved()),
    "disk": evidence(starved(read=1.7, decode=0.18)),
    "bursts": evidence(starved(decode=0.5)),
    "large pictures": evidence(starved(), data=LARGE),
    "link": evidence(*over_a_slow_link()),
    "one machine": evidence(*over_a_slow_link(("h1", "h1"))),
    "launches": evidence(ledger(LATE), profile=H200, result={"peak_memory_bytes": 10}),
    "tried": evidence(ledger(BUSY), plan={"tried": {"amp bf16": 1.9, "channels_last off": 1.2, "compile": 1.4}}),
    "ceilings": evidence(ledger(BUSY), profile=H200),
    "saves by steps": evidence(ledger(SAVING), checkpoint_steps=3),
    "saves by minutes": evidence(ledger(SAVING), checkpoint_minutes=0.02),
    "saves by epochs": evidence(ledger(SAVING), epochs=90, data={"train_samples": 640}),
    "evaluations": evidence(ledger({**BUSY, "eval": 0.4}), epochs=90),
    "straggler": evidence(*with_a_slow_one()),
}


def test_more_threads_gain_what_the_cores_allow() -> None:
    remedy = found(evidence(starved()))["--threads 7"]
    # Four threads decode a step's samples in 0.45 s, seven in 0.26 s; what the disk takes and the 0.01 s between the
    # parts stay.
    assert remedy.gain == pytest.approx(0.48 / (1.8 / 7 + 0.08 / 4 + 0.01), rel=0.01)
    assert remedy.low < remedy.gain < remedy.high
    assert not remedy.needs_new_run and not remedy.is_lossy


def test_no_more_threads_than_help() -> None:
    step = {"data_wait": 0.1, "compute": 0.4, "host": 0.0}
    profile = {"cores": {"allotted": 64}}
    assert first(evidence(ledger(step, threads=4, decode=2.0), profile=profile)) == "--threads 5"


def test_without_a_free_core_there_are_no_more_threads() -> None:
    for profile in ({"cores": {"allotted": 5}}, {}):
        assert not any("threads" in name for name in found(evidence(starved(), profile=profile)))


def test_large_pictures_are_packed_smaller() -> None:
    remedy = found(evidence(starved(), data=LARGE))["pack"]
    # Measured: 1,524 against 658 pictures a second.
    assert remedy.gain == pytest.approx(0.48 / (0.47 * 658 / 1524 + 0.01), rel=0.1)
    assert remedy.is_lossy and remedy.needs_new_run
    assert "stoker pack photos photos-256 --short-side 256 && " in remedy.command
    assert "pack" not in found(evidence(starved()))


def test_what_is_packed_small_already_is_left_alone() -> None:
    packed = Evidence(**{**vars(evidence(starved(), data=LARGE)), "packed": {"short_side": 256, "quality": 90}})
    assert "pack" not in found(packed)
    whole = Evidence(**{**vars(evidence(starved(), data=LARGE)), "packed": {"keep": True}})
    assert "pack" in found(whole)


def test_a_slow_disk_is_to_be_replaced() -> None:
    remedy = found(evidence(starved(read=1.7, decode=0.18)))["--data FAST_DISK/photos"]
    assert remedy.gain == pytest.approx(0.48 / 0.18, rel=0.02)
    assert remedy.command.startswith("cp -r photos FAST_DISK/photos && ")


def test_threads_that_rest_are_not_too_few() -> None:
    names = found(evidence(starved(decode=0.5)))
    assert "--ahead 16" in names
    assert not any("threads" in name for name in names)


def test_a_slow_link_is_cured_by_a_faster_one_or_by_fewer_bytes() -> None:
    names = found(evidence(*over_a_slow_link(), data={"train_samples": 10**6, "train_bytes": 10**10}))
    # As measured on such a link: 9.4 s a step plain, 4.65 with bf16, 0.64 with PowerSGD, 0.95 at ten times the rate.
    assert names["--compress bf16"].gain == pytest.approx(9.4 / 4.65, rel=0.05)
    assert names["--compress powersgd"].gain == pytest.approx(9.4 / 0.64, rel=0.2)
    assert names["doctor --peer"].gain == pytest.approx(9.4 / (0.3 + 0.91), rel=0.01)
    assert names["doctor --peer"].command == "stoker doctor --peer h2"
    assert names["--batch 256"].gain == pytest.approx(9.4 / (0.28 + (9.1 + 0.02) / 4), rel=0.02)
    assert "--compress bf16" not in found(evidence(*over_a_slow_link(), compress="bf16"))
    assert "--compress powersgd" not in found(evidence(*over_a_slow_link(), exact=True))
    assert all(names[name].is_lossy for name in names if "compress" in name or "batch" in name)


def test_late_work_is_cured_by_compiling_and_by_larger_batches() -> None:
    names = found(EVERY["launches"])
    assert names["--compile"].high == pytest.approx(0.22 / 0.12)
    assert names["--batch 128"].gain == pytest.approx(0.22 / (0.1 + 0.12 / 2), rel=0.1)
    full = evidence(ledger(LATE), profile=H200, result={"peak_memory_bytes": 60})
    assert "--batch 128" not in found(full), "twice as much would not fit"
    measured = evidence(ledger(LATE, pure_seconds=0.17), profile=H200)
    assert found(measured)["--compile"].high == pytest.approx(0.22 / 0.17), "launches cost less than they seem to"


def test_what_was_tried_before_the_run_is_what_it_gains() -> None:
    names = found(EVERY["tried"])
    assert names["--amp bf16"].gain == pytest.approx(1.9)
    assert names["--compile"].gain == pytest.approx(1.4)
    assert "--no-channels-last" in names
    assert "--amp bf16" not in found(evidence(ledger(BUSY), plan={"tried": {"amp bf16": 1.9}}, amp="bf16"))
    assert "--amp bf16" not in found(evidence(ledger(BUSY), plan={"tried": {"amp bf16": 0.9}}))


def test_older_gpus_get_fp16() -> None:
    assert "--amp bf16" in found(EVERY["ceilings"])
    assert "--amp fp16" in found(evidence(ledger(BUSY), profile=V100))


def test_fewer_checkpoints_leave_those_that_remain() -> None:
    remedy = found(EVERY["saves by steps"])["--checkpoint-steps 0"]
    # One of 1.2 s every 3 steps; 1,000 steps are an epoch, and one in about 450 s stays for interruptions.
    assert 1.9 < remedy.gain < 0.82 / 0.42
    assert "--checkpoint-minutes 0" in found(EVERY["saves by minutes"])
    epochs = found(EVERY["saves by epochs"])["--checkpoint-epochs 20"]
    assert epochs.gain == pytest.approx(0.82 / 0.44)
    assert not any("checkpoint" in name for name in found(evidence(ledger(BUSY), checkpoint_steps=3)))


def test_fewer_evaluations_gain_their_part() -> None:
    remedy = found(EVERY["evaluations"])["--eval-epochs 20"]
    assert remedy.gain == pytest.approx(0.82 / 0.44)
    assert "--eval-epochs 3" in found(evidence(ledger({**BUSY, "eval": 0.4}), epochs=3))


def test_a_straggler_is_to_be_replaced_by_name() -> None:
    (remedy,) = (r for r in found(EVERY["straggler"]).values() if "replace" in r.what)
    assert remedy.gain == pytest.approx(1.07 / 0.57)
    assert "h3 (process 2)" in remedy.what


def test_a_busy_gpu_without_a_trial_has_no_remedy() -> None:
    assert found(evidence(ledger(BUSY))) == {}


def test_the_surer_of_two_like_gains_comes_first() -> None:
    def one(gain: float, low: float, high: float) -> Remedy:
        return Remedy(what="", why="", command="", gain=gain, low=low, high=high)

    wide, narrow, small, great = one(2.0, 1.0, 4.0), one(1.9, 1.8, 2.0), one(1.2, 1.2, 1.2), one(3.0, 1.0, 9.0)
    assert list(ordered([small, wide, narrow, great])) == [great, narrow, wide, small]
    unsure, sure = one(1.12, 1.0, 1.3), one(1.03, 1.03, 1.03)
    assert list(ordered([sure, unsure])) == [unsure, sure], "a fourth of the gain is not near"


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("status", ["running", "done"])
def test_every_command_is_understood_and_does_what_it_says(
    name: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: dict[str, dict[str, Any]] = {}

    def caught(command: str) -> Any:
        def call(*words: Any, **values: Any) -> Any:
            called[command] = values
            raise SystemExit

        return call

    for command in ("train", "pack", "doctor", "plan"):
        monkeypatch.setattr(api, command, caught(command))
    known = EVERY[name]
    assert known.config is not None and known.record is not None
    made = runs.create(tmp_path / "a run", known.config, resumed_from=None)
    record = runs.update_record(made, status=status, data=known.record.data, result=known.record.result)
    known = Evidence(**{**vars(known), "folder": made.folder, "record": record})
    with pytest.raises(SystemExit):
        cli.main(shlex.split(elsewhere(known))[1:])
    assert called["plan"]["config"] == known.config
    shown = found(known)
    assert shown, "each of these has a remedy"
    for remedy in shown.values():
        for line in remedy.command.split(" && "):
            words = shlex.split(line)
            if words[0] in ("cp",):
                continue
            assert words[0] in ("stoker", "torchrun")
            words = words[words.index("stoker") + 1 :]
            with pytest.raises(SystemExit):
                cli.main(words)
            assert words[0] in called, "the flags were refused"
        if "train" in words:
            told = called["train"]
            changed = settings.identity_differences(known.config, told["config"])
            assert settings.differences(known.config, told["config"]), "something is changed"
            is_same = told["name"] == made.folder
            assert is_same == (not remedy.needs_new_run and status != "done")
            if is_same:
                assert [d.name for d in changed if d.name != "data"] == []
        called.clear()


def test_many_machines_meet_at_the_first_one() -> None:
    command = found(evidence(*over_a_slow_link()))["--compress bf16"].command
    assert command.startswith(
        "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint h1:29400 --nproc-per-node 1 -m stoker train"
    )
    alone = found(EVERY["one machine"])
    assert any(r.command.startswith("torchrun --nproc-per-node 2 -m stoker train") for r in alone.values())


def test_a_run_beside_the_runs_folder_is_called_by_its_whole_path() -> None:
    command = found(evidence(starved(), folder=Path("slow")))["--threads 7"].command
    assert shlex.split(command)[shlex.split(command).index("--name") + 1] == str(Path.cwd() / "slow")
