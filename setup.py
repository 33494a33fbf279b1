"""The part that needs a compiler; all else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "indexes.compiled._inner_loops",
            ["indexes/compiled/inner_loops.c"],
            # Without a compiler the package works all the same; see indexes/compiled.
            optional=True,
            py_limited_api=True,
            # One rounding after each operation, as NumPy does it.
            extra_compile_args=["-O3", "-ffp-contract=off"],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
