"""Commands and options of other tools, and Carpool's counterparts."""

from __future__ import annotations

import re

import click

from carpool.core.spelling import did_you_mean

#: Commands of Slurm, pueue, task-spooler, Docker, nvidia-smi and the shell.  Carpool's commands are not looked up.
_WORDS: dict[str, tuple[str, ...]] = {
    "ls": ("status", "queue", "squeue", "jobs", "list", "ps", "q", "stat", "qstat"),
    "history": ("sacct",),
    "cancel ID": ("kill", "scancel", "remove", "rm", "delete", "del", "qdel", "abort", "terminate"),
    "cancel ID, or for the daemon: carpool down": ("stop", "quit", "exit", "shutdown"),
    "show ID": ("info", "inspect", "describe", "scontrol", "job"),
    "logs ID": ("log", "output", "tail", "cat", "follow", "stdout"),
    "submit -- COMMAND": ("sbatch", "add", "qsub", "new", "queue-job"),
    "pause ID": ("suspend",),
    "hold ID": ("stash",),
    "release ID": ("unstash", "enqueue"),
    "run -- COMMAND": ("srun", "exec", "salloc"),
    "devices": ("nvidia-smi", "smi", "sinfo", "gpus", "gpu", "gpustat", "nodes", "device"),
    "top": ("htop", "nvtop", "watch", "monitor", "dashboard"),
    "retry ID": ("restart", "redo", "rerun", "again", "resubmit"),
    "set": ("ctl", "config", "settings", "setting", "get"),
    "up": ("start", "daemon", "init"),
    "limits": ("quota", "quotas", "limit", "sshare", "group", "groups", "parallel", "share"),
    "doctor": ("check", "diagnose", "diag"),
    "--help": ("help", "man", "usage"),
    "--version": ("version",),
}
_COMMANDS = {word: command for command, words in _WORDS.items() for word in words}
#: Options of Slurm and pueue, and Carpool's counterparts; only for commands that have the counterpart.
_OPTIONS = {
    "--gres": "--gpus",
    "--gpus-per-node": "--gpus",
    "--num-gpus": "--gpus",
    "--ngpus": "--gpus",
    "--job-name": "--name",
    "--label": "--name",
    "--dependency": "--after",
    "--workdir": "--chdir",
    "--working-directory": "--chdir",
    "--memory": "--mem",
    "--format": "--json",
    "--priority": "--weight",
    "--nice": "--weight",
    "--setting": "--set",
    "--duration": "--expect",
    "--phase": "--state",
    "--states": "--state",
    "--lines": "-n",
    "--tail": "-n",
}


def command_hint(word: str) -> str:
    """Return a hint to Carpool's command for a word of another tool; empty for an unknown word."""
    return f"in Carpool: carpool {_COMMANDS[word]}" if word in _COMMANDS else ""


def usage_hint(error: click.UsageError) -> str:
    """Return a hint for a wrong option or a wrong choice, with a space behind; empty if there is none."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = {name for parameter in error.ctx.command.params for name in parameter.opts}
        meant = _OPTIONS.get(error.option_name)
        return f"in Carpool: {meant}; " if meant in known else ""
    if isinstance(error, click.BadParameter) and error.param is not None and isinstance(error.param.type, click.Choice):
        given = re.match(r"'(.*?)' is not one of", error.message)
        return did_you_mean(given[1], map(str, error.param.type.choices)) if given else ""
    return ""
