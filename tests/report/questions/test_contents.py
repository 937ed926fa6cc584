from stoker.records import Event
from stoker.report.account import Saved
from tests.report import accounts
from tests.report.accounts import CONVERGED, NOW, answers, plain, told


def test_the_training_set_is_described_with_what_could_not_be_read():
    bad = tuple(accounts.unreadable(f"cat/{n}.jpg") for n in range(7))
    given = answers(plain(CONVERGED, events=(*bad, Event(at=NOW, kind="resume", what="goes on"))))["data"]
    assert given.answer == (
        "6,400 samples of 10 classes (192.0 MB); 1,000 more are held out to score it (a seeded 10% of the samples). "
        "7 samples could not be read."
    )
    assert told(given, "cat/4.jpg") and not told(given, "cat/5.jpg") and told(given, "and 2 more (events.jsonl)")


def test_a_split_of_its_own_is_named():
    given = answers(plain(CONVERGED, opened={**accounts.DATA, "held_out": "val", "empty_files": 3}))["data"]
    assert "(its own split: val)" in given.answer and "All that were tried could be read." in given.answer
    assert told(given, "3 empty files in it")


def test_a_checkpoint_is_taken_apart():
    first = Saved(step=900, at=NOW, parts=accounts.PARTS)
    last = Saved(step=1000, at=NOW, parts={**accounts.PARTS, "ema.safetensors": 94_000_000}, names=("latest",))
    given = answers(plain(CONVERGED, checkpoints=(first, last), optimizer="adamw"))["checkpoint"]
    assert given.answer.startswith("282.0 MB in 4 files: model.safetensors 94.0 MB, ")
    assert given.answer.endswith("2 checkpoints are kept, 470.0 MB together.")
    assert told(given, "optimizer.safetensors: 94.0 MB: AdamW's two numbers a weight")
    assert told(given, "ema.safetensors: 94.0 MB: the average") and told(given, "state.json: 1.2 kB: where the run is")
    assert told(given, "manifest.json: size and SHA-256") and told(given, "step 1,000: latest")


def test_torn_checkpoints_are_told_and_do_not_stand_for_the_whole():
    torn = Saved(step=1100, at=NOW, parts={"model.safetensors": 1}, torn="model.safetensors has 1 bytes")
    whole = Saved(step=1000, at=NOW, parts=accounts.PARTS)
    given = answers(plain(CONVERGED, checkpoints=(whole, torn)))["checkpoint"]
    assert given.answer.startswith("188.0 MB in 3 files")
    assert told(given, "step 1,100 is torn: model.safetensors has 1 bytes")
    alone = answers(plain(CONVERGED, checkpoints=(torn,)))["checkpoint"]
    assert not alone.is_known and "all of its checkpoints are torn" in alone.answer
