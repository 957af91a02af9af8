#!/usr/bin/env bash
# Spark 4.2 needs Java 17 or 21. Says in one sentence what is wrong and how to mend it.
set -euo pipefail

fix='install it with "sudo apt-get install openjdk-17-jre-headless" (macOS: "brew install openjdk@17" and set JAVA_HOME)'
java=${JAVA_HOME:+$JAVA_HOME/bin/}java

if ! command -v "$java" > /dev/null; then
    where=${JAVA_HOME:+ (JAVA_HOME is "$JAVA_HOME")}
    echo "Java is missing${where:-}: Spark needs Java 17 or 21; $fix." >&2
    exit 1
fi
# The answer is e.g. openjdk version "17.0.15" 2025-04-15; Java 8 calls itself "1.8.0_452".
answer=$("$java" -version 2>&1) || { echo "\"$java -version\" fails: Spark needs Java 17 or 21; $fix." >&2; exit 1; }
major=$(sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' <<< "$answer" | head -n 1)
if [[ $major != 17 && $major != 21 ]]; then
    echo "Java ${major:-of an unknown version} is here, but Spark needs Java 17 or 21; $fix." >&2
    exit 1
fi
