"""HParams does what that of TensorFlow 1.15.5 did: results and the texts of errors, case by case."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastsup.contrib.training import HParams, parse_values

# What 1.15.5 did in each of the cases below: a result, or the error's class and text.
REFERENCE = json.loads(Path(__file__).with_name("hparams_1_15.json").read_text())

KINDS = {"i": int, "f": float, "b": bool, "s": str, "li": int, "lf": float, "lb": bool, "ls": str}
VALUES: list[Any] = [
    0, 1, -2, 1.5, True, False, "t", b"t", None, [1], [1.5], [True], ["a"], [], (1, 2), {"a": 1}, [1, 2.5], [None],
]  # fmt: skip
TEXTS = [
    "", "i=2", "i=-3", "i=2.5", "i=a", "i=", "i=[1]", "i=true", "f=2", "f=.5e3", "f=nan", "f=x", "f=[1.5]", "b=true",
    "b=False", "b=1", "b=0", "b=2", "b=yes", "b=", "b=[true]", "s=hello", "s=hello world", "s=", "s=1", "s= a ",
    "s=a=b", "s=[a]", "li=[1,2,3]", "li=[1 2 3]", "li=[]", "li=[ ]", "li=[1,,2]", "li=[1.5]", "li=[a]", "li=3",
    "li[0]=5", "li[1]=5,li[0]=2", "li[1]=1,li[1]=2", "li[1]=[1,2]", "li[x]=1", "li[ 1 ]=3", "li [1]=3",
    "li=[1],li=[2]", "li=[1],li[0]=3", "li[0]=3,li=[1]", "li[0]=3,li=4", "li=4,li[0]=3", "lf=[1,2]", "lf=[.5, 1e3]",
    "lb=[true,false]", "lb=[1,0]", "lb=[maybe]", "ls=[x,y z]", "ls=[x]", "i=1,i=2", "i=1, f=2", "i=1 ,f=2",
    "i=1,,f=2", ",i=1", "i=1,", "i = 1", "i =1,f= 2", "unknown=1", "i=1,unknown=3", "1i=2", "_i=3", "i", "=3", "i==3",
    "i=3]", "i=[3", "ls=[a,b],i=7,f=1e-3,b=false,s=q", "n=3", "n=[1]", "s=a.b/c:d", "s=a[b", "s=a]b", "i=0x10",
    "i=1_000", "f=inf", "i= 5 ", "b= true", "lf[2]=1.5", "i[0]=3", "s[0]=k", "li=[1]x", "li=[1] ,i=2", "li=[1],  i=2",
]  # fmt: skip
JSON = [
    '{"i": 4}', '{"i": 4.5}', '{"f": 4}', '{"li": [3]}', '{"li": 3}', '{"b": 1}', '{"b": false, "s": "u"}',
    '{"zz": 1}', "[1]", "{", '{"s": null}', '{"n": 3}',
]  # fmt: skip
NAMES = ["i", "parse", "values", "get", "_hparam_types", "n", "a.b", "_model_structure", "to_json"]


def base() -> Any:
    return HParams(
        i=1, f=0.5, b=True, s="x", li=[1, 2], lf=[0.5, 1.5], lb=[True, False], ls=["a", "b"], n=None
    )  # fmt: skip


def changed(method: str, *arguments: Any) -> Any:
    """The object after a call of a method."""
    made = base()
    getattr(made, method)(*arguments)
    return made


def added(value: Any) -> Any:
    made = changed("add_hparam", "new", value)
    return made, made._hparam_types["new"]


def with_attribute() -> Any:
    made = base()
    made.i = "text"
    return made.values(), made.i


def structures() -> Any:
    made: Any = HParams(model_structure="k")
    return made.get_model_structure(), made.set_model_structure("m"), made.get_model_structure()


def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    for text in TEXTS:
        yield f"parse {text}", lambda text=text: base().parse(text)
        yield f"values {text}", lambda text=text: parse_values(text, KINDS)
        yield f"ignore {text}", lambda text=text: parse_values(text, {"i": int, "s": str}, ignore_unknown=True)
        yield f"ignore keyword {text}", lambda text=text: parse_values(text, {"li": int, "b": bool}, True)
    for name in base().values():
        for value in VALUES:
            yield f"set {name} {value!r}", lambda name=name, value=value: changed("set_hparam", name, value)
            yield f"get {name} {value!r}", lambda name=name, value=value: base().get(name, value)
    for value in VALUES:
        yield f"add {value!r}", lambda value=value: added(value)
        yield f"get absent {value!r}", lambda value=value: base().get("absent", value)
    for name in NAMES:
        yield f"add name {name}", lambda name=name: changed("add_hparam", name, 3)
        yield f"del {name}", lambda name=name: changed("del_hparam", name)
        yield f"in {name}", lambda name=name: name in base()
    for text in JSON:
        yield f"json {text}", lambda text=text: base().parse_json(text)
    yield "del absent", lambda: changed("del_hparam", "zz")
    yield "set absent", lambda: changed("set_hparam", "zz", 1)
    yield "override absent", lambda: base().override_from_dict({"zz": 1})
    yield "override", lambda: base().override_from_dict({"i": 5, "f": 3, "ls": ["q"]})
    yield "map", lambda: base().set_from_map({"i": 5})
    yield "to_json", lambda: base().to_json()
    yield "to_json indent", lambda: base().to_json(indent=2, sort_keys=True)
    yield "to_json separators", lambda: HParams(i=1, f=2.0).to_json(separators=(",", ":"))
    yield "str", lambda: str(base())
    yield "repr", lambda: repr(base())
    yield "empty", HParams
    yield "types", lambda: {name: [kind.__name__, many] for name, (kind, many) in base()._hparam_types.items()}
    yield "empty list", lambda: HParams(a=[])
    yield "tuple", lambda: HParams(a=(1, 2)).parse("a=[3]")
    yield "attribute", with_attribute
    yield "structure", structures
    yield "structure no hparam", lambda: HParams(model_structure="k").values()


def shown(value: Any) -> Any:
    if isinstance(value, HParams):
        return ["HParams", shown(value.values())]
    if isinstance(value, dict):
        return {str(key): shown(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(shown, value)]
    return repr(value)


def outcome(case: Callable[[], Any]) -> Any:
    try:
        return shown(case())
    except Exception as error:
        # The words of Python's own errors depend on its version.
        return [type(error).__name__, str(error) if type(error) in (ValueError, KeyError) else ""]


def test_as_tensorflow_1_15() -> None:
    ours = {name: outcome(case) for name, case in cases()}
    assert len(ours) > 700
    assert {name: found for name, found in ours.items() if REFERENCE[name] != found} == {}
    assert set(ours) == set(REFERENCE)


def test_no_hparam_def() -> None:
    with pytest.raises(ValueError, match="TensorFlow 2 has no HParamDef"):
        HParams(hparam_def="definition")


def test_what_to_json_gives_can_be_parsed() -> None:
    made = base()
    made.parse("i=9,ls=[u,v],b=false")
    again = base().parse_json(made.to_json())
    assert again.values() == made.values()
