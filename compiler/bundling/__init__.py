"""Static bundles: a module with its kernels and its runtime as C that a program is linked with.

`bundle_files` gives the files; docs/bundles.md says what they are, docs/design/0026 why.
"""
