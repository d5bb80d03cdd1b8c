#!/bin/sh
# Installs the real harnesses that tests/e2e runs: Claude Code (both lines that npm offers), Codex, opencode and Gemini CLI (npm), mini-swe-agent,
# Harbor, Inspect and the SDKs of Gemini, Ollama, Vertex and Bedrock (pip, in venvs of their own); and for the Docker door aiodocker (pip) and
# the docker command's plugins compose and buildx, and a newer dockerd (Debian packages, unpacked, so Linux on amd64 or arm64 with apt).
#
#   tests/e2e/tools.sh [claude] [codex] [opencode] [gemini] [mini] [sdks] [aiodocker] [plugins]
#                      [harbor] [inspect] [engine] [claude-newer] [agent-sdk] [aider]
#
# Default: all but the last row (harbor 470 MB, Python 3.12 or 3.13; inspect 370 MB, with engine, a dockerd of 26.1, 90 MB unpacked; aider 670 MB,
# Python 3.12; claude-newer 250 MB, agent-sdk 460 MB), which `make test-all` asks for.
#
# Into $FAIRTRIAL_E2E_DIR, else .e2e/ at the top of the repository; nothing outside of it is changed.
# Idempotent: a tool whose stamp names the wanted version is left alone. Prints one line per tool; what could not be
# installed is said with its reason, and the exit status is 1 (tests that need that tool then skip with the same reason).
set -u

CLAUDE_VERSION=2.1.197        # the newest that declares Node 20
CLAUDE_NEWER_VERSION=2.1.332  # npm's tag latest; declares Node 22 and is a native program: any Node's npm installs it
AGENT_SDK_VERSION=0.2.189     # brings Claude Code 2.1.332
AIDER_VERSION=0.86.2
CODEX_VERSION=0.171.0         # one binary of 400 MB, any Node starts it
OPENCODE_VERSION=1.18.33
GEMINI_VERSION=0.61.0
MINI_VERSION=2.4.6
LITELLM_VERSION=1.110.2
SDKS="google-genai==3.6.1 ollama==0.6.3 anthropic[vertex,bedrock]==2.14.0 boto3==1.44.8"
AIODOCKER_VERSION=0.27.0
HARBOR_VERSION=0.26.0
INSPECT="inspect-ai==0.3.285 anthropic==2.14.0 openai==3.57.0"
PLUGINS="docker-compose=2.26.1-4 docker-buildx=0.13.1+ds1-3"
ENGINE="docker.io=26.1.5*"

here=$(cd "$(dirname "$0")" && pwd)
root=${FAIRTRIAL_E2E_DIR:-$here/../../.e2e}
mkdir -p "$root/stamps" "$root/log" "$root/home" || exit 1
root=$(cd "$root" && pwd)
failed=0

say() { printf '%s\n' "$*"; }

stamped() { [ -f "$root/stamps/$1" ] && [ "$(cat "$root/stamps/$1")" = "$2" ]; }

done_with() { printf '%s\n' "$2" > "$root/stamps/$1"; say "$1: installed $2"; }

could_not() {
    say "$1: NOT installed: $2"
    rm -f "$root/stamps/$1"
    failed=1
}

# Usage: install_claude_line STAMP VERSION
install_claude_line() {
    if stamped "$1" "$2"; then say "$1: have $2"; return; fi
    if ! command -v npm >/dev/null 2>&1; then could_not "$1" "npm is not on PATH (Debian: apt-get install npm)"; return; fi
    if ! HOME="$root/home" npm install --no-fund --no-audit --loglevel=error --cache "$root/npm-cache-$1" --prefix "$root/npm-$1" \
        "@anthropic-ai/claude-code@$2" > "$root/log/$1.log" 2>&1; then
        could_not "$1" "npm install failed: $(tail -n 1 "$root/log/$1.log") (all of it: $root/log/$1.log)"
        return
    fi
    rm -rf "$root/npm-cache-$1"
    found=$(HOME="$root/home" DISABLE_AUTOUPDATER=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
        "$root/npm-$1/node_modules/.bin/claude" --version 2>&1 < /dev/null)
    case "$found" in
        "$2"*) done_with "$1" "$2" ;;
        *) could_not "$1" "installed, but --version answers: $found" ;;
    esac
}

install_codex() {
    if stamped codex "$CODEX_VERSION"; then say "codex: have $CODEX_VERSION"; return; fi
    if ! command -v npm >/dev/null 2>&1; then could_not codex "npm is not on PATH (Debian: apt-get install npm)"; return; fi
    if ! HOME="$root/home" npm install --no-fund --no-audit --loglevel=error --cache "$root/npm-cache-codex" --prefix "$root/npm-codex" \
        "@openai/codex@$CODEX_VERSION" > "$root/log/codex.log" 2>&1; then
        could_not codex "npm install failed: $(tail -n 1 "$root/log/codex.log") (all of it: $root/log/codex.log)"
        return
    fi
    rm -rf "$root/npm-cache-codex"
    found=$(HOME="$root/home" "$root/npm-codex/node_modules/.bin/codex" --version 2>/dev/null < /dev/null)
    case "$found" in
        *" $CODEX_VERSION") done_with codex "$CODEX_VERSION" ;;
        *) could_not codex "installed, but --version answers: $found" ;;
    esac
}

install_opencode() {
    if stamped opencode "$OPENCODE_VERSION"; then say "opencode: have $OPENCODE_VERSION"; return; fi
    if ! command -v npm >/dev/null 2>&1; then could_not opencode "npm is not on PATH (Debian: apt-get install npm)"; return; fi
    if ! HOME="$root/home" npm install --no-fund --no-audit --loglevel=error --cache "$root/npm-cache-opencode" --prefix "$root/npm-opencode" \
        "opencode-ai@$OPENCODE_VERSION" > "$root/log/opencode.log" 2>&1; then
        could_not opencode "npm install failed: $(tail -n 1 "$root/log/opencode.log") (all of it: $root/log/opencode.log)"
        return
    fi
    rm -rf "$root/npm-cache-opencode"
    found=$(HOME="$root/home" OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 \
        "$root/npm-opencode/node_modules/.bin/opencode" --version 2>/dev/null < /dev/null)
    case "$found" in
        *"$OPENCODE_VERSION") done_with opencode "$OPENCODE_VERSION" ;;
        *) could_not opencode "installed, but --version answers: $found" ;;
    esac
}

install_gemini() {
    if stamped gemini "$GEMINI_VERSION"; then say "gemini: have $GEMINI_VERSION"; return; fi
    if ! command -v npm >/dev/null 2>&1; then could_not gemini "npm is not on PATH (Debian: apt-get install npm)"; return; fi
    if ! HOME="$root/home" npm install --no-fund --no-audit --loglevel=error --cache "$root/npm-cache-gemini" --prefix "$root/npm-gemini" \
        "@google/gemini-cli@$GEMINI_VERSION" > "$root/log/gemini.log" 2>&1; then
        could_not gemini "npm install failed: $(tail -n 1 "$root/log/gemini.log") (all of it: $root/log/gemini.log)"
        return
    fi
    rm -rf "$root/npm-cache-gemini"
    found=$(HOME="$root/home" "$root/npm-gemini/node_modules/.bin/gemini" --version 2>/dev/null < /dev/null)
    case "$found" in
        *"$GEMINI_VERSION") done_with gemini "$GEMINI_VERSION" ;;
        *) could_not gemini "installed, but --version answers: $found" ;;
    esac
}

# A Python of the wanted kind: $FAIRTRIAL_E2E_PYTHON, else the repository's own venv, else python3.
python_to_use() {
    for candidate in "${FAIRTRIAL_E2E_PYTHON:-}" "$here/../../.venv/bin/python" python3; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 && { printf '%s' "$candidate"; return; }
    done
}

install_mini() {
    if stamped mini "$MINI_VERSION"; then say "mini: have $MINI_VERSION"; return; fi
    python=$(python_to_use)
    if [ -z "$python" ]; then could_not mini "no python3 on PATH"; return; fi
    if ! { rm -rf "$root/mini" && "$python" -m venv "$root/mini" \
        && "$root/mini/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
            "mini-swe-agent==$MINI_VERSION" "litellm==$LITELLM_VERSION"; } > "$root/log/mini.log" 2>&1; then
        could_not mini "pip install failed: $(tail -n 1 "$root/log/mini.log") (all of it: $root/log/mini.log)"
        return
    fi
    if HOME="$root/home" MSWEA_SILENT_STARTUP=1 "$root/mini/bin/python" -c 'import minisweagent' >> "$root/log/mini.log" 2>&1; then
        done_with mini "$MINI_VERSION"
    else
        could_not mini "installed, but does not import (see $root/log/mini.log)"
    fi
}

install_sdks() {
    if stamped sdks "$SDKS"; then say "sdks: have $SDKS"; return; fi
    python=$(python_to_use)
    if [ -z "$python" ]; then could_not sdks "no python3 on PATH"; return; fi
    # shellcheck disable=SC2086 # the list is meant to be split
    if ! { rm -rf "$root/sdks" && "$python" -m venv "$root/sdks" \
        && "$root/sdks/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir $SDKS; } > "$root/log/sdks.log" 2>&1; then
        could_not sdks "pip install failed: $(tail -n 1 "$root/log/sdks.log") (all of it: $root/log/sdks.log)"
        return
    fi
    if HOME="$root/home" "$root/sdks/bin/python" -c 'import google.genai, ollama, boto3, anthropic' >> "$root/log/sdks.log" 2>&1; then
        done_with sdks "$SDKS"
    else
        could_not sdks "installed, but does not import (see $root/log/sdks.log)"
    fi
}

install_aiodocker() {
    if stamped aiodocker "$AIODOCKER_VERSION"; then say "aiodocker: have $AIODOCKER_VERSION"; return; fi
    python=$(python_to_use)
    if [ -z "$python" ]; then could_not aiodocker "no python3 on PATH"; return; fi
    if ! { rm -rf "$root/aiodocker" && "$python" -m venv "$root/aiodocker" \
        && "$root/aiodocker/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
            "aiodocker==$AIODOCKER_VERSION" && "$root/aiodocker/bin/python" -c 'import aiodocker'; } > "$root/log/aiodocker.log" 2>&1; then
        could_not aiodocker "pip install failed: $(tail -n 1 "$root/log/aiodocker.log") (all of it: $root/log/aiodocker.log)"
        return
    fi
    done_with aiodocker "$AIODOCKER_VERSION"
}

# Harbor declares Python >= 3.12, and its dependencies have no wheels for 3.14 yet; aider declares < 3.13.
# Usage: newer_python MINOR... (such as 12 13)
newer_python() {
    wanted=$(printf '(3, %s), ' "$@")
    for candidate in "${FAIRTRIAL_E2E_PYTHON312:-}" python3.13 python3.12 "$HOME"/.pyenv/versions/3.13.*/bin/python \
        "$HOME"/.pyenv/versions/3.12.*/bin/python; do
        [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ('"$wanted"'))' \
            > /dev/null 2>&1 && { printf '%s' "$candidate"; return; }
    done
}

install_harbor() {
    if stamped harbor "$HARBOR_VERSION"; then say "harbor: have $HARBOR_VERSION"; return; fi
    python=$(newer_python 12 13)
    if [ -z "$python" ]; then
        could_not harbor "no Python 3.12 or 3.13 was found (say FAIRTRIAL_E2E_PYTHON312=/path/to/python)"
        return
    fi
    if ! { rm -rf "$root/harbor" && "$python" -m venv "$root/harbor" \
        && "$root/harbor/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
            "harbor==$HARBOR_VERSION"; } > "$root/log/harbor.log" 2>&1; then
        could_not harbor "pip install failed: $(tail -n 1 "$root/log/harbor.log") (all of it: $root/log/harbor.log)"
        return
    fi
    found=$(HOME="$root/home" HARBOR_TELEMETRY=0 "$root/harbor/bin/harbor" --version 2>> "$root/log/harbor.log" < /dev/null)
    case "$found" in
        *"$HARBOR_VERSION"*) done_with harbor "$HARBOR_VERSION" ;;
        *) could_not harbor "installed, but --version answers: $found" ;;
    esac
}

install_inspect() {
    if stamped inspect "$INSPECT"; then say "inspect: have $INSPECT"; return; fi
    python=$(python_to_use)
    if [ -z "$python" ]; then could_not inspect "no python3 on PATH"; return; fi
    # shellcheck disable=SC2086 # the list is meant to be split
    if ! { rm -rf "$root/inspect" && "$python" -m venv "$root/inspect" \
        && "$root/inspect/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir $INSPECT; } > "$root/log/inspect.log" 2>&1; then
        could_not inspect "pip install failed: $(tail -n 1 "$root/log/inspect.log") (all of it: $root/log/inspect.log)"
        return
    fi
    if HOME="$root/home" "$root/inspect/bin/python" -c 'import inspect_ai, anthropic, openai' >> "$root/log/inspect.log" 2>&1; then
        done_with inspect "$INSPECT"
    else
        could_not inspect "installed, but does not import (see $root/log/inspect.log)"
    fi
}

install_agent_sdk() {
    if stamped agent-sdk "$AGENT_SDK_VERSION"; then say "agent-sdk: have $AGENT_SDK_VERSION"; return; fi
    python=$(python_to_use)
    if [ -z "$python" ]; then could_not agent-sdk "no python3 on PATH"; return; fi
    if ! { rm -rf "$root/agent-sdk" && "$python" -m venv "$root/agent-sdk" \
        && "$root/agent-sdk/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
            "claude-agent-sdk==$AGENT_SDK_VERSION" && "$root/agent-sdk/bin/python" -c 'import claude_agent_sdk'; } > "$root/log/agent-sdk.log" 2>&1; then
        could_not agent-sdk "pip install failed: $(tail -n 1 "$root/log/agent-sdk.log") (all of it: $root/log/agent-sdk.log)"
        return
    fi
    done_with agent-sdk "$AGENT_SDK_VERSION"
}

install_aider() {
    if stamped aider "$AIDER_VERSION"; then say "aider: have $AIDER_VERSION"; return; fi
    python=$(newer_python 12)
    if [ -z "$python" ]; then
        could_not aider "no Python 3.12 was found (say FAIRTRIAL_E2E_PYTHON312=/path/to/python)"
        return
    fi
    if ! { rm -rf "$root/aider" && "$python" -m venv "$root/aider" \
        && "$root/aider/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
            "aider-chat==$AIDER_VERSION"; } > "$root/log/aider.log" 2>&1; then
        could_not aider "pip install failed: $(tail -n 1 "$root/log/aider.log") (all of it: $root/log/aider.log)"
        return
    fi
    found=$(HOME="$root/home" LITELLM_LOCAL_MODEL_COST_MAP=True "$root/aider/bin/aider" --version 2>> "$root/log/aider.log" < /dev/null)
    case "$found" in
        *"$AIDER_VERSION"*) done_with aider "$AIDER_VERSION" ;;
        *) could_not aider "installed, but --version answers: $found" ;;
    esac
}

# Packages of Debian 13 that need nothing that Debian 12 lacks.  apt works on lists of its own.
# Usage: unpack_debian STAMP FILE PACKAGE... : FILE is a path in the unpacked packages whose folder goes to $root/STAMP.
unpack_debian() {
    stamp=$1 wanted=$2
    shift 2
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    for needed in apt-get dpkg; do
        command -v $needed >/dev/null 2>&1 || { could_not "$stamp" "$needed is not on PATH"; return 1; }
    done
    [ -f "$keyring" ] || { could_not "$stamp" "$keyring is missing (apt-get install debian-archive-keyring)"; return 1; }
    apt=$root/apt-$stamp
    rm -rf "$apt" "${root:?}/$stamp"
    mkdir -p "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/x" \
        "$root/$stamp"
    cp /etc/apt/apt.conf.d/* "$apt/etc/apt.conf.d/" 2>/dev/null
    printf 'deb [signed-by=%s] http://deb.debian.org/debian trixie main\n' "$keyring" > "$apt/etc/sources.list"
    options="-o Dir::Etc=$apt/etc -o Dir::State=$apt/state -o Dir::Cache=$apt/cache -o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User="
    # shellcheck disable=SC2086 # the list is meant to be split
    if ! { apt-get $options update && (cd "$apt" && apt-get $options download "$@" \
        && for package in *.deb; do dpkg -x "$package" x || exit 1; done) \
        && cp -R "$apt/x/$wanted" "$root/$stamp/"
    } > "$root/log/$stamp.log" 2>&1; then
        could_not "$stamp" "apt-get failed: $(tail -n 1 "$root/log/$stamp.log") (all of it: $root/log/$stamp.log)"
        return 1
    fi
    rm -rf "$apt"
}

# Debian 12 has neither plugin.
install_plugins() {
    if stamped plugins "$PLUGINS"; then say "plugins: have $PLUGINS"; return; fi
    # shellcheck disable=SC2086 # the list is meant to be split
    unpack_debian plugins usr/libexec/docker/cli-plugins $PLUGINS || return
    done_with plugins "$PLUGINS"
}

# Inspect's Docker sandbox wants an engine of 24.0.6 or newer, and Debian 12 has 20.10: only the daemon of Debian 13's, which
# takes the containerd and runc that are installed.
install_engine() {
    if stamped engine "$ENGINE"; then say "engine: have $ENGINE"; return; fi
    unpack_debian engine usr/sbin "$ENGINE" || return
    found=$("$root/engine/sbin/dockerd" --version 2>&1)
    case "$found" in
        "Docker version 26."*) done_with engine "$ENGINE" ;;
        *) could_not engine "unpacked, but --version answers: $found" ;;
    esac
}

[ $# -gt 0 ] || set -- claude codex opencode gemini mini sdks aiodocker plugins
for tool in "$@"; do
    case "$tool" in
        claude) install_claude_line claude "$CLAUDE_VERSION" ;;
        claude-newer) install_claude_line claude-newer "$CLAUDE_NEWER_VERSION" ;;
        agent-sdk) install_agent_sdk ;;
        aider) install_aider ;;
        codex) install_codex ;;
        opencode) install_opencode ;;
        gemini) install_gemini ;;
        mini) install_mini ;;
        sdks) install_sdks ;;
        aiodocker) install_aiodocker ;;
        plugins) install_plugins ;;
        harbor) install_harbor ;;
        inspect) install_inspect ;;
        engine) install_engine ;;
        *)
            say "unknown tool: $tool (known: claude, codex, opencode, gemini, mini, sdks, aiodocker, plugins, harbor,"
            say "  inspect, engine, claude-newer, agent-sdk, aider)"
            failed=1
            ;;
    esac
done
exit $failed
