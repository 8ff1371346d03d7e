"""A user's policy in a Python file: read as text for the plan, and as a class in the machine.

`inside.policies.interface` says what such a class is.
"""

import sys
from pathlib import Path
from types import ModuleType

from testbed.basics.errors import InputError
from testbed.basics.toml_file import label, shown, suggestion
from testbed.inside.policies.interface import Policy
from testbed.inside.policies.selection import RULES
from testbed.plan.model import FIXED, TOR, PlannedPolicy


def read_policy(name: str, scenario: Path) -> PlannedPolicy:
    """The policy in a file, for the plan.

    Args:
        name: as in the scenario; a path is relative to the scenario's file.

    Raises:
        InputError: there is no such file, it fails, or it has no policy, or several.
    """
    key = f"{label(scenario)}: paths.policy = {shown(name)}"
    path = scenario.parent / Path(name).expanduser()
    if path.suffix != ".py":
        known = suggestion(name, (FIXED, TOR, *(rule for rule in RULES if rule != TOR)))
        raise InputError(f"{key}: is not a policy: {known}, or the path of a .py file")
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        raise InputError(f"{key}: can't be read: give the path as seen from the scenario") from None
    try:
        policy_class(source, path.name)
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
    return PlannedPolicy(name=path.stem, text=source)


def policy_class(source: str, name: str) -> type[Policy]:
    """The class that a file defines.

    Args:
        source: the file's text.
        name: the file's, for errors.

    Raises:
        InputError: the text fails, or it has no policy, or several.
    """
    module = ModuleType(f"policies.{Path(name).stem}")
    sys.modules[module.__name__] = module  # where dataclasses look for it
    try:
        exec(compile(source, name, "exec"), vars(module))
    except Exception as error:  # the file is the user's program and may raise anything
        raise InputError(f"can't be imported: {error!r}") from error
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Policy)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise InputError(
            f"defines {len(classes)} subclasses of Policy, not one"
            " (from testbed.inside.policies.interface import Policy)"
        )
    return classes[0]
