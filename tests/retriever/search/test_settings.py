"""Settings of a search: keywords for editors, and what front ends derive from the dataclasses."""

from __future__ import annotations

from types import NoneType
from typing import get_args, get_type_hints

import pytest

from indexes.bm25 import BM25Settings
from retriever.search import FusionSettings, SearchSettings, search_settings
from retriever.search.settings import USED_BY_METHOD, SearchKeywords, search_fields
from retriever.settings import declared_settings

KINDS = (SearchSettings, FusionSettings, BM25Settings)


def without_none(hint):
    return {part for part in get_args(hint) if part is not NoneType} or {hint}


def test_search_keywords_are_the_fields_of_the_dataclasses():
    keywords = get_type_hints(SearchKeywords)
    fields = {name: hint for kind in KINDS for name, hint in get_type_hints(kind).items()}
    assert keywords.keys() == fields.keys()
    for name in fields.keys() - {"fusion"}:
        assert without_none(keywords[name]) == without_none(fields[name]), name


@pytest.mark.parametrize("name", search_fields())
def test_search_settings_take_each_shared_field(name):
    field = search_fields()[name]
    declared = {key: one for kind in KINDS for key, one in declared_settings(kind).items()}
    default = declared["method" if name == "fusion" else name].default
    method = "rrf" if name in USED_BY_METHOD["rrf"] else "convex"
    if default is not None:
        keywords = {"fusion": method, name: default}
        assert search_settings(None, keywords) == search_settings(None, {"fusion": method})
    assert field.default is None
    assert field.allows(None)
    assert field.default_text


def test_each_field_of_fusion_but_the_method_is_used_by_one_method():
    used = [name for names in USED_BY_METHOD.values() for name in names]
    assert sorted(["method", *used]) == sorted(declared_settings(FusionSettings))
