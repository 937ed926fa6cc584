import inspect

from stoker import api

FUNCTIONS = {
    "as_json",
    "bench_ledger",
    "bench_loader",
    "bench_resume",
    "bench_step",
    "compare",
    "configured",
    "doctor",
    "eval",
    "export",
    "extended",
    "inspect",
    "lr_find",
    "pack",
    "plan",
    "plans",
    "predict",
    "report",
    "train",
    "watch",
    "why",
    "work",
}
CLASSES = {"Ask", "Trained"}


def test_the_front_door_has_these_names_and_no_others():
    public = {name: getattr(api, name) for name in api.__all__}
    assert {name for name, value in public.items() if inspect.isfunction(value)} == FUNCTIONS
    assert {name for name, value in public.items() if inspect.isclass(value)} == CLASSES
    own = {name for name, value in vars(api).items() if getattr(value, "__module__", None) == api.__name__}
    assert {name for name in own if not name.startswith("_")} <= {*api.__all__}
