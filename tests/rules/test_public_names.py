import inspect

from stoker import api

FUNCTIONS = {
    "as_json",
    "bench_loader",
    "bench_resume",
    "bench_step",
    "configured",
    "doctor",
    "eval",
    "export",
    "extended",
    "inspect",
    "lr_find",
    "pack",
    "predict",
    "train",
    "why",
    "work",
}
CLASSES = {"Trained"}


def test_the_front_door_has_these_names_and_no_others():
    own = {name: value for name, value in vars(api).items() if getattr(value, "__module__", None) == api.__name__}
    public = {name: value for name, value in own.items() if not name.startswith("_")}
    assert {name for name, value in public.items() if inspect.isfunction(value)} == FUNCTIONS
    assert {name for name, value in public.items() if inspect.isclass(value)} == CLASSES
