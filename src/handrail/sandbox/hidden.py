"""Where people keep credentials, and which folders a launch has no business in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from handrail.sandbox.programs import BACKENDS, Needs

CREDENTIALS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", "_netrc", ".authinfo",
    ".authinfo.gpg", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub",
    ".config/glab-cli", ".config/gcloud", ".config/doctl", ".config/heroku", ".config/rclone",
    ".config/op", ".config/sops", ".config/containers", ".config/helm", ".config/github-copilot",
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".pki", ".pypirc",
    ".npmrc", ".yarnrc.yml", ".gem/credentials", ".cargo/credentials", ".cargo/credentials.toml",
    ".terraform.d", ".terraformrc", ".vault-token", ".pgpass", ".my.cnf", ".s3cfg", ".boto",
    ".oci", ".fly", ".m2/settings.xml", ".gradle/gradle.properties", ".huggingface/token",
    ".cache/huggingface/token", ".databrickscfg", ".snowflake", ".wallet", ".bitcoin", ".ethereum",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera",
    ".config/1Password", ".config/Bitwarden", ".config/Signal", ".config/Slack",
    ".config/Code/User/globalStorage",
    ".var/app", "snap", ".bash_history", ".zsh_history", ".python_history", ".node_repl_history",
    ".psql_history", ".mysql_history", ".local/share/fish/fish_history",
)  # fmt: skip
"""Files and folders below a home with logins, keys, cookies, or lines that were typed."""
OF_THE_SYSTEM = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private",
    "/etc/krb5.keytab", "/etc/docker", "/etc/kubernetes", "/var/lib/docker", "/var/spool/cron",
    "/var/run/secrets", "/root/.ssh",
)  # fmt: skip
_KEYS_OF_THE_HOST = "/etc/ssh"


def homes(env: Mapping[str, str]) -> tuple[Path, ...]:
    """The home of this user, and the one that a launch is told."""
    named = Path(env.get("HOME", ""))
    return tuple(dict.fromkeys((Path.home(), *([named] if named.is_absolute() else ()))))


def credentials(env: Mapping[str, str], needs: Needs) -> Iterator[Path]:
    """What is hidden from any launch; the state of other agents' programs has their logins."""
    own = {state.within(env, home) for home in homes(env) for state in needs.states}
    for home in homes(env):
        yield from (home / name for name in CREDENTIALS)
        for program in BACKENDS.values():
            yield from {state.within(env, home) for state in program.states} - own
        yield home / ".local" / "state" / "handrail"
    yield from map(Path, OF_THE_SYSTEM)
    yield from Path(_KEYS_OF_THE_HOST).glob("ssh_host_*_key")
    named = (Path(env.get(name, "")) for name in ("KUBECONFIG", "NETRC"))
    yield from (path for path in named if path.is_absolute())
