"""YAML to a tree with places: what is read, filled in, refused, and where it says things stand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.document import parse


def read(text, **env):
    return parse(text, file="f.yaml", env=env)


def tree(text, **env):
    document = read(text, **env)
    assert document.problems == ()
    return document.data


def problems(text, **env):
    return [str(problem) for problem in read(text, **env).problems]


def test_scalars_are_those_of_yaml_1_2():
    text = """
    int: 12
    float: 1.5
    exponent: 1e3
    true: true
    null: null
    tilde: ~
    empty:
    text: abc
    norway: no
    off: off
    sexagesimal: 10:30
    date: 2024-01-01
    hex: 0x10
    quoted: "12"
    tagged: !!str 12
    block: |
      a
      b
    """
    assert tree(text) == {
        "int": 12,
        "float": 1.5,
        "exponent": 1000.0,
        "true": True,
        "null": None,
        "tilde": None,
        "empty": None,
        "text": "abc",
        "norway": "no",
        "off": "off",
        "sexagesimal": "10:30",
        "date": "2024-01-01",
        "hex": "0x10",
        "quoted": "12",
        "tagged": "12",
        "block": "a\nb\n",
    }


def test_every_key_and_item_has_a_line():
    document = read("a:\n  b:\n    - x\n    - c: 1\n      d: 2\n\ne: {f: 1,\n  g: 2}\n")
    lines = {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", 0): 3,
        ("a", "b", 1): 4,
        ("a", "b", 1, "c"): 4,
        ("a", "b", 1, "d"): 5,
        ("e", "g"): 8,
    }
    assert {path: document.line_of(path) for path in lines} == lines


def test_what_is_missing_stands_where_its_parent_does():
    document = read("a: 1\nb:\n  c: 2\n")
    assert document.line_of(("b", "missing", 0)) == 2
    assert document.line_of(("missing",)) == 1
    assert document.written(("b", "missing")) == ""


def test_an_empty_text_has_no_data_and_no_problem():
    assert tree("") is None
    assert tree("# only a comment\n") is None


def test_a_value_is_filled_in_from_the_environment():
    text = """
    whole: ${NAME}
    part: "http://${NAME}:${PORT:-80}/"
    default: ${UNSET:-a b}
    empty_default: ${UNSET:-}
    empty_takes_default: ${EMPTY:-d}
    escaped: $${NAME}
    dollar: $NAME $5
    """
    assert tree(text, NAME="gpu", EMPTY="") == {
        "whole": "gpu",
        "part": "http://gpu:80/",
        "default": "a b",
        "empty_default": "",
        "empty_takes_default": "d",
        "escaped": "${NAME}",
        "dollar": "$NAME $5",
    }


def test_what_was_filled_in_is_text_and_is_not_filled_in_again():
    assert tree("a: ${A}", A="12") == {"a": "12"}
    assert tree("a: ${A}", A="${B}", B="x") == {"a": "${B}"}


def test_keys_are_not_filled_in():
    assert tree('"${A}": 1', A="x") == {"${A}": 1}


def test_an_unset_variable_is_a_problem_that_names_it():
    document = read("a: 1\nb: [x, 'k${UNSET}${ALSO}']\n", OTHER="x")
    assert document.data == {"a": 1, "b": ["x", None]}
    assert [str(problem) for problem in document.problems] == [
        f"f.yaml:2  b[1] = k${{UNSET}}${{ALSO}}: "
        f"set {name} in the environment, or write ${{{name}:-default}}"
        for name in ("UNSET", "ALSO")
    ]


@pytest.mark.parametrize("written", ["${", "${1A}", "${A B}", "${}", "${A-b}", "x${A"])
def test_a_broken_reference_is_a_problem(written):
    (problem,) = problems(f"a: '{written}'", A="secret")
    assert problem.startswith(f"f.yaml:1  a = {written}: ${{ must go on as ${{NAME}}")


def test_a_secret_from_the_environment_is_not_written():
    document = read("a: Bearer ${NAME}\n", NAME="sk-secret")
    assert document.data == {"a": "Bearer sk-secret"}
    assert document.written(("a",)) == "Bearer ${NAME}"
    assert "sk-secret" not in repr(document.problem(("a",), "must be shorter"))


def test_a_key_given_twice_is_a_problem_at_the_second():
    assert problems("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n") == [
        "f.yaml:5  b.c: is given twice; line 3 has it already"
    ]


def test_anchors_are_followed():
    assert tree("a: &x {b: [1]}\nc: *x\n") == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_merge_keys_yield_to_own_keys_and_to_earlier_ones():
    text = """
    one: &one {a: 1, b: 1}
    two: &two {b: 2, c: 2}
    merged: {c: 3, <<: [*one, *two]}
    nested: {<<: {d: 4, <<: *two}}
    """
    data = tree(text)
    assert data["merged"] == {"a": 1, "b": 1, "c": 3}
    assert data["nested"] == {"d": 4, "b": 2, "c": 2}


@pytest.mark.parametrize("source", ["1", "[1]", "x", "[[]]"])
def test_only_mappings_can_be_merged(source):
    assert "must name another mapping" in problems(f"a: {{<<: {source}}}")[0]


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [id]",
        "a: !!python/name:os.system x",
        "a: !custom {b: 1}",
        "a: !!binary aGk=",
        "a: !!timestamp 2024-01-01",
        "a: !!set {x}",
        "a: !x [1]",
    ],
)
def test_tags_are_refused(text):
    (problem,) = problems(text)
    assert "must have no tag" in problem


@pytest.mark.parametrize("text", ["a: !!int x", "a: !!float x", "a: " + "9" * 5000])
def test_what_is_no_number_is_a_problem(text):
    assert "must be a number" in problems(text)[0]


def test_a_key_must_be_text():
    assert problems("? [a]\n: 1\n") == ["f.yaml:1: a key must be text"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c", "f.yaml:1: isn't YAML: mapping values are not allowed here"),
        ("a: 1\n\tb: 2", "f.yaml:2: isn't YAML: found character '\\t'"),
        ("a: 1\nb: [1", "f.yaml:2: isn't YAML: "),
        ("a: 1\nb: *x", "f.yaml:2: isn't YAML: found undefined alias 'x'"),
        ("a: 1\n---\nb: 1", "f.yaml:2: isn't YAML: but found another document; take out the"),
        ("a: [::1]:80", "f.yaml:1: isn't YAML: "),
        ("a: 1\nb: \x07", "f.yaml:2: must be text; there is a control character here"),
        ("[" * 5000, "f.yaml:1: is nested too deeply"),
    ],
)
def test_what_is_no_yaml_is_one_problem_with_its_line(text, problem):
    (found,) = problems(text)
    assert found.startswith(problem)


def test_an_alias_inside_its_own_anchor_ends():
    assert problems("a: &a [1, *a]") == ["f.yaml:1  a[1]: must not contain itself through an alias"]
    assert problems("a: &a {b: {<<: *a}}") == [
        "f.yaml:1  a.b.<<: must name another mapping, or a list of them"
    ]


@pytest.mark.parametrize("step", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_of_aliases_end(step):
    lines = (f"x{i}: &x{i} " + step.format(", ".join([f"*x{i - 1}"] * 9)) for i in range(1, 12))
    (problem,) = problems("\n".join(["x0: &x0 {a: 1}", *lines]))
    assert "must hold at most 100000 values" in problem


@given(st.text(alphabet=st.sampled_from(list("ab:-[]{}&*!?|>'\"%@`#,<$\n\t 1.~")), max_size=60))
def test_any_text_is_a_tree_or_problems(text):
    document = read(text, a="x")
    for problem in document.problems:
        assert 1 <= problem.line <= text.count("\n") + 2
        assert problem.expected


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_TREES)
def test_json_is_read_as_itself(value):
    text = json.dumps(value).replace("${", "$${")
    if "\\u" not in text.replace("\\u00", ""):  # YAML knows no pairs of surrogates
        assert tree(text) == value
