#!/bin/sh
# Compiles C for the target that cargo builds, with Zig (pip install ziglang), which has a C library for every processor.
# Zig has other names for targets than Rust, so that the one in the arguments is dropped.
for argument; do
    shift
    case $argument in --target=*) ;; *) set -- "$@" "$argument" ;; esac
done
exec python3 -m ziglang cc -target "${TARGET%%-*}-linux-musl" "$@"
