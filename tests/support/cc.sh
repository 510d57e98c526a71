#!/bin/sh
# gcc for the tests: a file is compiled once for all of their processes, which link copies of the result.
set -e
source='' target='' previous=''
for word; do
    case $previous in
        -c) source=$word ;;
        -o) target=$word ;;
    esac
    previous=$word
done
[ -n "$source" ] || exec gcc "$@"
key=$(cat "$source" "${source%/*}"/*.h 2>/dev/null | cksum | tr ' ' -)
kept=$SELFREFLECT_TEST_OBJECTS/${source##*/}-$key.o
if [ ! -f "$kept" ]; then
    gcc "$@"
    cp "$target" "$kept.$$"
    mv "$kept.$$" "$kept" # another process sees it whole or not at all
fi
cp "$kept" "$target"
