"""Plug-ins: tables, and figures of the report, which are found by being in a package."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def modules_in(package: str) -> list[ModuleType]:
    """The modules of a package, in the order that each states as `ORDER`.

    Names that begin with an underscore are left out: they are for code that several modules share.
    """
    names = [module.name for module in iter_modules(import_module(package).__path__)]
    modules = [import_module(f"{package}.{name}") for name in names if not name.startswith("_")]
    return sorted(modules, key=lambda module: (module.ORDER, module.__name__))
