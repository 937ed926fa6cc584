from stoker.config.stages import Stage
from stoker.data.order import Route
from stoker.watch.transcript import transcript
from tests.watch.made_up import evaluated, scored, spent

WAY = Route(count=100, stages=(Stage(resolution=32, batch=10, epochs=10),), atoms=1, last_step="drop")


def test_a_line_is_as_the_screen_shows_it():
    (line,) = transcript([scored(2)], [spent(2)], WAY)
    assert line == (
        "Epoch [0][ 2/10]  Time 0.100 (0.100)  Data 0.010 (0.010)  Loss 1.6667 (1.6667)  Top1 2.00 (2.00)"
        "  Top5 95.00 (95.00)  lr 0.1"
    )


def test_means_are_over_the_epoch_so_far():
    lines = transcript([scored(step) for step in (8, 10, 12, 14)], [spent(step) for step in (8, 10, 12, 14)], WAY)
    assert "Top1 10.00  " in lines[1]
    assert "Top1 12.00 (12.00)" in lines[2] and "Top1 14.00 (13.00)" in lines[3]


def test_a_start_in_the_middle_of_an_epoch_begins_means_anew():
    ledger = [spent(2), spent(4), spent(6, attempt=2)]
    lines = transcript([scored(2), scored(4), scored(6)], ledger, WAY)
    assert "Top1 4.00 (3.00)" in lines[1] and "Top1 6.00 (6.00)" in lines[2]


def test_what_is_not_known_is_left_out():
    (line,) = transcript([scored(4)], [], None)
    assert line == "Epoch [0][step 4]  Loss 1.4286  Top1 4.00  Top5 95.00  lr 0.1"
    broken = scored(2)
    broken.scores["loss"] = None  # type: ignore[assignment]
    assert "Loss not finite" in transcript([broken], [spent(2)], WAY)[0]


def test_an_evaluation_has_a_line_of_its_own():
    assert transcript([evaluated(10)], [], WAY) == ("Epoch [0] held out  Loss 1.25  Top1 5  Top5 90  (20 samples)",)
