#!/bin/bash
# Has git run `make check` before each push from this clone, or no longer: hooks.sh [--remove]
set -euo pipefail
cd "$(dirname "$0")/.."

hook=$(git rev-parse --git-path hooks/pre-push)
if [ "${1-}" = --remove ]; then
    rm -f "$hook"
    echo "removed $hook"
    exit
fi
if [ -e "$hook" ] && ! grep -q 'make check' "$hook"; then
    echo "hooks.sh: $hook exists already, and is not ours" >&2
    exit 1
fi
mkdir -p "$(dirname "$hook")"
cat >"$hook" <<'HOOK'
#!/bin/sh
# Installed by `make hooks`. `git push --no-verify` goes without it, `scripts/hooks.sh --remove` removes it.
exec make --no-print-directory check
HOOK
chmod +x "$hook"
echo "installed $hook: \`make check\` runs before each push"
