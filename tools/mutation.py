"""Try small changes of the code, and say which of them the tests do not notice.

    python -m tools.mutation                         all targets
    python -m tools.mutation engine/services/claims.py
    python -m tools.mutation --tests                 only the files of the tests of all targets

Each mutant has one small change in one function. It has `<` for `<=`, `and` for `or`, a filter without one of
its conditions, or a call left out. It is killed if a test fails. The tests of a target run once to see which
lines each one reaches. Then every mutant is tried in a forked process, in which the code of its function is
replaced, by the tests that reach its line. So the imports and the database are made once.

Those of `EQUIVALENT` are not tried: all tests that reach such a mutant would run to say what is known.

Exits with 1 where a mutant survives, and with 2 where a target, or a mutant of `EQUIVALENT`, does not exist.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import coverage
import pytest
from _pytest.runner import runtestprotocol

from engine.selectors.compiled import Compiled

ROOT = Path(__file__).resolve().parent.parent

_OF_A_CLICK = [
    "tests/engine/test_judging.py",
    "tests/engine/test_leases.py",
    "tests/engine/test_overlap.py",
    "tests/engine/test_append_only.py",
    "tests/engine/test_allowances.py",
    "tests/engine/test_rule_judge.py",
    "tests/engine/test_turns.py",
    "tests/engine/test_checks.py",
    "tests/engine/test_identical_texts.py",
    "tests/engine/test_pools.py",
    "tests/engine/test_past_votes.py",
    "tests/blinding/test_two_roles.py",
]
# The tests of each target.
TARGETS = {
    "engine/core/stopping.py": ["tests/core/test_stopping.py"],
    "engine/services/claims.py": ["tests/engine/test_claims.py"],
    "engine/services/identical_texts.py": [
        "tests/engine/test_identical_texts.py",
        "tests/engine/test_pools.py",
    ],
    "engine/services/judging.py": _OF_A_CLICK,
    "engine/services/leases.py": _OF_A_CLICK,
    "labeling/access.py": ["tests/labeling/test_access.py", "tests/labeling/test_connections.py"],
}
# Mutants that change nothing that these tests could see: by target, function and change, the reason.
EQUIVALENT: dict[str, dict[str, str]] = {
    "engine/services/claims.py": {
        "expired: rows.filter(overdue(), claim__isnull=False) -> rows.filter(overdue())": (
            "A row without a claim has no deadline either."
        ),
    },
    "engine/services/judging.py": {
        "judge_leased: about.note(comparison=comparison.pk) -> None": ("For the log: tests/test_logs.py."),
    },
    "engine/services/leases.py": {
        "_due: 1 -> 2": "The first row alone is looked at.",
        "discard_unwanted: Comparison.objects.filter(pk__in=doubtful, state=Comparison.State.READY) -> "
        "Comparison.objects.filter(pk__in=doubtful)": (
            "They were ready a moment ago; with PostgreSQL somebody may have judged one since."
        ),
    },
}
# In processor time: a mutant that loops for ever counts as killed.
SECONDS = 300

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_CONDITIONS = {"filter", "exclude", "get", "get_object_or_404", "update"}


@dataclass(frozen=True)
class Mutant:
    """One change: its place, its function's name, its text, and the module's code with it.

    The code is changed back when the next mutant is asked for: copies would take longer than all else.
    """

    lines: range
    change: str
    tree: ast.Module


@dataclass
class Score:
    """The mutants of one target: those that a test noticed, that none did, and that change nothing."""

    killed: int = 0
    survived: int = 0
    equivalent: int = 0


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module. Only code inside functions is changed."""
    tree = ast.parse(source)
    bodies = [
        (node, index)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for index in range(len(node.body))
    ]
    seen: set[int] = set()
    for function, index in bodies:
        for node in _without_annotations(function.body[index]):
            if id(node) in seen:
                continue
            seen.add(id(node))
            for change in _changes(node):
                before = ast.unparse(node)
                undo = change()
                lines = range(node.lineno, node.end_lineno + 1)
                read = f"{function.name}: {before} -> {ast.unparse(node)}"
                yield Mutant(lines, read, tree)
                undo()


def _without_annotations(node: ast.AST) -> Iterator[Any]:
    if hasattr(node, "lineno"):
        yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"} or (name == "keywords" and _locks(node)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _without_annotations(child)


def _locks(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr == "select_for_update"


def _changes(node: Any) -> Iterator[Callable[[], Callable[[], None]]]:
    """Functions that change the node in place, and return a function that undoes that."""

    def put(owner: Any, name: str, value: Any) -> Callable[[], Callable[[], None]]:
        def change() -> Callable[[], None]:
            was = getattr(owner, name)
            setattr(owner, name, value)
            return lambda: setattr(owner, name, was)

        return change

    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in _SWAPPED:
            yield put(node, "ops", [_SWAPPED[type(operator)](), *node.ops[1:]])
        case ast.BoolOp() | ast.BinOp() if type(node.op) in _SWAPPED:
            yield put(node, "op", _SWAPPED[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield put(node, "operand", ast.copy_location(ast.UnaryOp(ast.Not(), node.operand), node))
        case ast.If() | ast.IfExp():
            yield put(node, "test", ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test))
        case ast.Constant(value=bool() as value):
            yield put(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield put(node, "value", value + 1)
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _CONDITIONS:
            for index in range(len(node.keywords)):
                yield put(node, "keywords", node.keywords[:index] + node.keywords[index + 1 :])
        case ast.Expr(value=ast.Call()):
            yield put(node, "value", ast.copy_location(ast.Constant(None), node))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield put(node, "value", ast.copy_location(ast.Constant(None), value))


def replace_code(module: types.ModuleType, tree: ast.Module) -> None:
    """Give every function and method of the module its code in ``tree``;
    who has imported it has it then too.
    """
    source = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
    outermost = [code for code in source.co_consts if isinstance(code, types.CodeType)]
    # The methods of a class are constants of the class's own code.
    nested = [code for each in outermost for code in each.co_consts if isinstance(code, types.CodeType)]
    codes = {code.co_qualname: code for code in (*outermost, *nested)}
    for function in _functions(module):
        if function.__qualname__ in codes:
            function.__code__ = codes[function.__qualname__]
    forget_statements(module)


def forget_statements(module: types.ModuleType) -> None:
    """Have the module's compiled reads built anew, by the code that there is now, at their next call."""
    for each in vars(module).values():
        if isinstance(each, Compiled):
            each._reads.clear()


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    owners = [module, *(each for each in vars(module).values() if inspect.isclass(each))]
    for owner in owners:
        for each in vars(owner).values():
            found = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
            found = inspect.unwrap(found) if callable(found) else found
            if isinstance(found, types.FunctionType) and found.__module__ == module.__name__:
                yield found


class Trial:
    """Runs in pytest's place: all tests once, then every mutant with the tests that reach its line."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.score = Score()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        path = ROOT / self.target
        module = importlib.import_module(self.target.removesuffix(".py").replace("/", "."))
        measured = coverage.Coverage(data_file=None, config_file=False, include=[str(path)])
        measured.start()
        failed, seconds = [], {}
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            measured.switch_context(item.nodeid)
            # Every test reaches the lines that build its reads, not only the first.
            forget_statements(module)
            began = time.process_time()
            failed += [] if _passes(item, following) else [item.nodeid]
            seconds[item.nodeid] = time.process_time() - began
        measured.stop()
        if failed:
            raise pytest.UsageError(f"These tests fail without any mutant: {', '.join(failed)}")
        reached = measured.get_data().contexts_by_lineno(str(path))
        # Most mutants die in the first tests, so the fast ones come first.
        items = sorted(session.items, key=lambda item: seconds[item.nodeid])
        for mutant in mutants(path.read_text(encoding="utf-8")):
            tests = {test for line in mutant.lines for test in reached.get(line, ())}
            if mutant.change in EQUIVALENT.get(self.target, {}):
                self.score.equivalent += 1
            elif survives(module, mutant, [item for item in items if item.nodeid in tests]):
                self.score.survived += 1
                print(f"survived  {self.target}:{mutant.lines[0]}: {mutant.change}", flush=True)
            else:
                self.score.killed += 1
        if not survives(module, Mutant(range(0), "", ast.parse(path.read_text(encoding="utf-8"))), items):
            raise pytest.UsageError(
                "The tests fail without any mutant by now, so some were not killed by a test."
            )
        return True


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=following)
    return not any(report.failed for report in reports)


def survives(module: types.ModuleType, mutant: Mutant, items: list[pytest.Item]) -> bool:
    """True if the mutant, tried in a process of its own, fails none of these tests."""
    child = os.fork()
    if not child:
        failed = True
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            replace_code(module, mutant.tree)
            failed = any(not _passes(item, following) for item, following in pairwise([*items, None]))
        finally:
            # Even after an exception: a child that returned would try all further mutants once more.
            os._exit(failed)
    return os.waitpid(child, 0)[1] == 0


def gone(target: str) -> list[str]:
    """The changes that `EQUIVALENT` names and the target's code does not have any more."""
    changes = {mutant.change for mutant in mutants((ROOT / target).read_text(encoding="utf-8"))}
    return [change for change in EQUIVALENT.get(target, {}) if change not in changes]


def main(targets: list[str]) -> int:
    """Try the targets, all by default; print the scores. Returns the exit status."""
    if targets == ["--tests"]:
        print(*dict.fromkeys(test for tests in TARGETS.values() for test in tests))
        return 0
    unknown = [target for target in targets if target not in TARGETS]
    if unknown:
        print(f"No such target: {', '.join(unknown)}. The targets are {', '.join(TARGETS)}.")
        return 2
    if stale := [f"{target}: {change}" for target in targets or TARGETS for change in gone(target)]:
        print("No such mutant; take it out of EQUIVALENT:", *stale, sep="\n")
        return 2
    survived = 0
    for target in targets or TARGETS:
        trial = Trial(target)
        pytest.main(["-q", "-p", "no:cacheprovider", *TARGETS[target]], plugins=[trial])
        score = trial.score
        total = score.killed + score.survived + score.equivalent
        survived += score.survived
        print(
            f"{target}: {score.killed} of {total} mutants killed; of the others {score.equivalent} change "
            "nothing."
        )
        if not total:
            return 1
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
