"""Templates of conversations: what Hugging Face's libraries know, and what takes too long."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import ingot
from ingot.language import template
from ingot.language.template import render

_DOUBLED = (
    "{%% set n = namespace(x='ab') %%}{%% for a in range(99) %%}"
    "{%% set n.x = n.x %s n.x %%}{%% endfor %%}"
)
MESSAGES = [
    {"role": "system", "content": "be <brief>"},
    {"role": "user", "content": "h\u00e9"},
    {"role": "assistant", "content": "yes", "tool_calls": [{"name": "f", "arguments": {"x": 1}}]},
    {"role": "user", "content": "and?"},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "system", "content": "be <brief>"}'),
        ("{{ tools | tojson(indent=1) }}", '[\n {\n  "name": "f"\n }\n]'),
        ("{{ [messages[1].content] | tojson }}", '["h\u00e9"]'),
        (
            "{%- set ns = namespace(last=-1) -%}{%- for m in messages -%}"
            "{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}"
            "{%- endfor -%}{{ ns.last }} of {{ messages | length }}",
            "3 of 4",
        ),
        (
            "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}"
            "{% if m.role == 'system' %}{% continue %}{% endif %}"
            "{% generation %}{{ loop.index ~ '/' ~ loop.length }}{% if not loop.last %} "
            "{% endif %}{% endgeneration %}{% endfor %}",
            "2/4 3/4 ",
        ),
        ("{% for m in messages[::-1] if m.role == 'user' %}{{ m.content }};{% endfor %}",
         "and?;h\u00e9;"),
        ("{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}{{ loop(x) }}{% else %}"
         "{{ x }}{% endif %}{% endfor %}", "123"),
        ("{% macro m(x, y='b') %}{{ x + y }}{% endmacro %}{{ m('a') * 2 }}{{ 2 ** 3 * 4 + 1 }}",
         "abab33"),
        ("{{ x is defined }} {{ x is defined and not x }} {{ x | default('d') }} "
         "{%- if x is not defined or x is none %}{{ messages[0].x is undefined }}{% endif %}",
         "False False dTrue"),
        ("{{ 'on' if enable_thinking is defined and enable_thinking else 'off' }}", "on"),
        ("{% if documents is not none %}x{% endif %}{{ messages[2].tool_calls[0].arguments.x }}",
         "1"),
    ],
)  # fmt: skip
def test_what_templates_know(text: str, expected: str) -> None:
    values = {"messages": MESSAGES, "tools": [{"name": "f"}], "enable_thinking": True}
    assert render(text, {**values, "documents": None}) == expected


_CALL = {"name": "f", "arguments": {"ort": "K\u00f6ln", "n": 1.5, "z": None, "b": True}}
_TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "<a> & 'b'", "parameters": {
        "type": "object", "required": ["ort"], "properties": {
            "ort": {"type": "string", "enum": ["a", "b"]}, "n": {"type": ["integer", "null"]},
            "l": {"type": "array", "items": {"type": "number"}}}}}},
]  # fmt: skip
_TALKS = [
    [{"role": "user", "content": " hi \n"}],
    [*MESSAGES[:2], {"role": "assistant", "content": "<t>\nx</t>\n\nyes "}, MESSAGES[3]],
    [
        MESSAGES[1],
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": _CALL}]},
        *({"role": "tool", "content": f"{degrees}\xb0"} for degrees in (7, 8)),
        MESSAGES[3],
    ],
    [{"role": "user", "content": [{"type": "text", "text": "t "}, {"type": "image"}]}],
]
_SHOWN = (
    "{%- macro shown(c) %}{% if c is string %}{{ c | trim }}{% elif c is mapping %}{{ c | tojson }}"
    "{% elif c is iterable %}{% for p in c %}{{ p.text if p.type == 'text' else '<' ~ p.type }}"
    "{% endfor %}{% endif %}{% endmacro -%}\n"
)
_OF_FAMILIES = [
    "{{ bos_token }}{%- if not day is defined %}{%- set day = strftime_now('%d %b %Y') %}"
    "{%- endif %}"
    "{% if messages[0].role == 'system' %}{% set first = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}{{ day }}\n"
    "{{ first }}"
    "{% if tools is not none %}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}"
    "{% endif %}"
    "{% for m in messages %}{% if 'tool_calls' in m %}{{ m.tool_calls[0].function | tojson }}"
    "{% else %}{{ '<' + m['role'] + '>' + m['content'] | string }}{% endif %}{% endfor %}",
    _SHOWN
    + "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}"
    "{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = loop.revindex0 %}{% endif %}"
    "{% endfor %}\n    {% for m in messages %}\n{{ m.role }}:{{ shown(m.content) }}"
    "{% if m.role == 'tool' and (loop.last or messages[loop.index0 + 1].role != 'tool') %};"
    "{% endif %}"
    "{% if loop.index0 > ns.last or thinks is defined and not thinks %}!{% endif %}{% endfor %}",
    "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{% for m in messages %}{% if m == users[-1] and tools %}{% for t in tools %}"
    "{% for k, v in t.function.items() if k != 'name' %}{{ k ~ '=' }}"
    "{{ v if v is string else v | tojson }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}{% endfor %}{% endif %}"
    "{% if m.content is string %}{{ m.content.split('</t>')[-1].lstrip('\n') }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments | dictsort %}"
    "{{ k }}:{{ v | tojson if v is not string else v }}/{% endfor %}{% endfor %}{% endfor %}",
    "{%- macro kind(p, needed) -%}{% if p.type == 'array' %}{{ kind(p['items'], []) }}[]"
    "{% elif p.type == 'object' %}{% for n, q in p.properties.items() %}{{ n }}"
    "{{ '' if n in needed else '?' }}: {{ kind(q, []) }}{% if not loop.last %}, {% endif %}"
    "{% endfor %}"
    "{% elif p.enum %}{{ p.enum | join(' | ') }}{% elif p.type is not string %}"
    "{{ p.type | join('|') }}"
    "{% else %}{{ p.type }}{% endif %}{%- endmacro -%}"
    "{% for t in tools or [] %}{{ kind(t.function.parameters, t.function.parameters.required) }}"
    "{% endfor %}{% for m in messages %}{% if m.role not in ['user', 'system', 'assistant'] %}"
    "{{ raise_exception('role ' ~ m.role) }}{% endif %}{{ loop.cycle('a', 'b') }}{% endfor %}",
]  # fmt: skip
"""What templates of families are made of."""


@pytest.mark.parametrize("text", _OF_FAMILIES)
def test_conversations_are_those_of_transformers(text: str) -> None:
    template_utils = pytest.importorskip("transformers.utils.chat_template_utils")
    for talk in _TALKS:
        for options in ({"tools": None}, {"tools": _TOOLS, "thinks": False}):
            values = {"messages": talk, "bos_token": "<s>", **options}
            try:
                expected = template_utils._compile_jinja_template(text).render(**values)
            except Exception as error:
                with pytest.raises(ingot.InvalidArgument, match=str(error)):
                    render(text, values)
            else:
                assert render(text, values) == expected


def test_the_day_is_known() -> None:
    before = datetime.now().strftime("%d %b %Y")
    assert render("{{ strftime_now('%d %b %Y') }}", {}) in (
        before,
        datetime.now().strftime("%d %b %Y"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in '0' * 99999 %}{% for b in range(99999) %}{% if b %}{% endif %}{% endfor %}"
        "{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
        "{{ m(60) }}",
        "{% for a in [range(99999)] recursive %}{% if a is iterable %}{{ loop([a, a]) }}{% endif %}"
        "{% endfor %}",
    ],
)
def test_templates_that_take_too_long_are_ended(text: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(template, "_SECONDS", 0.2)
    with pytest.raises(ingot.InvalidArgument, match=r"takes longer than 0\.2 seconds|recursion"):
        render(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ [1] * 999999999 }}",
        "{{ 10 ** (10 ** 10) }}",
        _DOUBLED % "+",
        _DOUBLED % "~",
        "{{ 'x'.ljust(300000000) }}",
        "{{ 'x' | center(300000000) }}",
        "{{ [1] | tojson(indent=100000000) }}",
        "{% set x = 'a' * 8000000 %}{% for a in range(40) %}{{ x }}{% endfor %}",
    ],
)
def test_templates_that_make_too_long_texts_are_ended(text: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match="texts are longer than"):
        render(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "{{ '%300000000d' % 1 }}",
        "{{ '%*d' % (300000000, 1) }}",
        "{{ '%300000000d' | format(1) }}",
        "{{ '{:300000000d}'.format(1) }}",
        "{{ '{:{w}d}'.format(1, w=300000000) }}",
        "{{ '{x:300000000d}'.format_map({'x': 1}) }}",
    ],
)
def test_wide_fields_are_refused(text: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match="its texts have a width"):
        render(text, {})


def test_filters_count_their_turns(monkeypatch: Any) -> None:
    monkeypatch.setattr(template, "_SECONDS", 0.1)
    text = "{% set r = range(99999) | list %}{{ r | map('string') | select('in', r) | list }}"
    with pytest.raises(ingot.InvalidArgument, match="takes longer than"):
        render(text, {})
    with pytest.raises(ingot.InvalidArgument, match="lipsum"):
        render("{{ lipsum(n=20000) }}", {})


def test_formats_of_usual_widths_are_known() -> None:
    text = "{{ '%5d|%s' % (1, 'a') }}{{ '{:>3}'.format('b') }}{{ '%02d' | format(7) }}"
    assert render(text, {}) == "    1|a  b07"


def test_templates_reach_nothing_else() -> None:
    for text in ("{{ ''.__class__ }}{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"):
        with pytest.raises(ingot.InvalidArgument, match="the model's template"):
            render(text, {"messages": []})


_NESTED = (
    "{% set n = namespace(x=[1], y=[1]) %}{% for a in range(40) %}"
    "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ %s }}"
)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ('a' * 4000000).replace('a', 'b' * 1000) | length }}",
        "{{ ('a' * 4000000) | replace('a', 'b' * 1000) | length }}",
        "{{ ('b' * 1000).join('a' * 4000000) | length }}",
        "{{ range(90000) | join('b' * 1000) | length }}",
        "{{ ('\t' * 1000).expandtabs(1000000) | length }}",
        "{{ ('a' * 1000000).translate({97: 'b' * 1000}) | length }}",
        "{{ ('\n' * 100000) | indent(100000, blank=true) | length }}",
        "{{ (('%99999d' * 10000) % ((1,) * 10000)) | length }}",
        "{{ ('{0:99999}' * 10000).format(1) | length }}",
        "{{ ('{0}' * 10000).format('a' * 100000) | length }}",
        "{{ ('%(a)s' * 10000) | format(a='b' * 100000) | length }}",
        "{{ ([('a' * 4000000)] * 1000) | string | length }}",
        "{{ ([('a' * 4000000)] * 1000) | tojson | length }}",
        "{{ ('aa ' * 5000000).split() | length }}",
        "{{ ('a' * 8000000) | list | length }}",
        "{{ ('a b ' * 3000000) | wordwrap | length }}",
        "{{ ('<' * 100000) | striptags | length }}",
        "{{ ('%c' * 4000000) | e | length }}",
        "{{ strftime_now('%c' * 4000000) }}",
        "{% set n = namespace(x=[]) %}{% set s = [1] * 90000 %}{% for a in range(999) %}"
        "{% set n.x = s[1:] %}{% endfor %}",
    ],
)
def test_calls_that_would_make_too_much_do_not_begin(text: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match="its texts are longer than"):
        render(text, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((_NESTED.replace("%s", each), "too many parts") for each in (
            "n.x", "n.x ~ 'a'", "n.x | tojson", "n.x == n.y", "n.x in [n.y]", "n.x is eq(n.y)",
            "[n.x, n.y] | sort", "[n.x].index(n.y)", "[n.x] | select('eq', n.y) | list",
        )),
        ("{{ ('f' * 90000) | int(base=16) // 7 }}", "integers are too long"),
        ("{{ 3 is divisibleby(('f' * 90000) | int(base=16)) }}", "integers are too long"),
        ("{{ 7 | round(100000000, 'ceil') }}", "texts are longer than"),
        ("{{ ([[1]] * 1000) | sum(start=[]) }}", "sums are of numbers alone"),
    ],
)  # fmt: skip
def test_values_that_nothing_would_end_with_are_refused(text: str, message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        render(text, {})


def test_what_is_given_may_be_large() -> None:
    image = "a" * (1 << 25)
    messages = [{"role": "user", "content": [{"type": "image", "data": image}, {"text": "b"}]}] * 99
    text = (
        "{% for m in messages[1:] %}{% if m == messages[0] and m in messages %}{{ m.role }}"
        "{{ m.content | selectattr('text') | map(attribute='text') | join(',') }}{% endif %}"
        "{% endfor %}{{ messages | length }}"
    )
    assert render(text, {"messages": messages}) == "userb" * 98 + "99"
    assert render("{{ 'a,b'.replace(',', '--').split('-') | join(7) }}", {}) == "a77b"
