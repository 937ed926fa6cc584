"""What people ask about a run, answered from its account: always all of it, in the same order. Pure."""

from stoker.report.account import Account
from stoker.report.questions import contents, employment, maturity, overfitting, pace, schedule, spending, traffic
from stoker.report.questions.question import Question

__all__ = ["Question", "asked"]


def asked(account: Account) -> tuple[Question, ...]:
    """Every question with its answer, and an honest word where the evidence is not there."""
    return (
        spending.time(account),
        maturity.asked(account),
        overfitting.asked(account),
        employment.gpus(account),
        employment.network(account),
        schedule.asked(account),
        contents.data(account),
        contents.checkpoint(account),
        pace.asked(account),
        traffic.asked(account),
        spending.cost(account),
        spending.plan(account),
    )
