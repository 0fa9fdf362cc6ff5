"""Selection of the jobs of a command: its arguments and options, and the ids that these select.

`with_job_selection` and `selected` are for commands that act on any number of jobs, `with_one_job` and `the_job` for
those that show one.  An id is used as it was written; all else selects among the jobs that the daemon lists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from carpool.cli.base import job_filters
from carpool.cli.base.cli_error import Exit, Problem
from carpool.cli.base.job_filters import Filters
from carpool.cli.base.job_listing import Listing, several, what_there_is
from carpool.cli.base.job_words import Called, Elements, JobWord, Last, Numbers, job_word
from carpool.cli.base.journal_jobs import JobReader
from carpool.cli.base.options_common import Parsed, completed
from carpool.protocol.api import JobInfo
from carpool.protocol.client import DaemonClient
from carpool.protocol.display import escaped

F = TypeVar("F", bound=Callable[..., object])


class JobWordType(Parsed):
    """A word for jobs; the shell completes ids, and names of jobs."""

    def __init__(self) -> None:
        super().__init__("job", job_word)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Complete an id, or the name of a job."""
        return completed(ctx, incomplete, _words_to_complete)


def _words_to_complete(client: DaemonClient) -> dict[str, str]:
    jobs = client.jobs(limit=100)
    names = {job.name: f"job {job.id}" for job in jobs if job.name and job.name.isprintable()}
    return {str(job.id): escaped(job.name) for job in jobs} | names


JOB_WORD = JobWordType()


@dataclass(frozen=True, slots=True)
class Selection:
    """The words and filters for jobs on a command line."""

    words: tuple[JobWord, ...]
    filters: Filters


def _options(all_of: str) -> list[Callable[[Any], Any]]:
    return [
        click.argument("words", type=JOB_WORD, nargs=-1, metavar="[JOB]..."),
        click.option("--all", "-a", "everything", is_flag=True, help=all_of),
        *filter_options("Only jobs in these states, as `carpool ls` calls them; repeatable."),
    ]


def _states_to_complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [state for state in job_filters.STATES if state.startswith(incomplete)]


def filter_options(states: str) -> list[Callable[[Any], Any]]:
    """The options that `filters_of` takes; ``states``: the help of --state."""
    return [
        click.option(
            "--user", "users", multiple=True, metavar="NAME", help="Jobs of this user ('*': all users); repeatable."
        ),
        click.option(
            "--state", "states", multiple=True, metavar="STATE[,STATE]", help=states, shell_complete=_states_to_complete
        ),
        click.option(
            "--name", "names", multiple=True, metavar="NAME", help="Only jobs of this name, or pattern; repeatable."
        ),
    ]


def with_filters(states: str) -> Callable[[F], F]:
    """Add ``filters: Filters``, for a command that takes no words for jobs; ``states``: the help of --state."""

    def added(function: F) -> F:
        return _with(function, filter_options(states), lambda filters, **_: {"filters": filters})

    return added


def _with(function: F, options: Sequence[Callable[[Any], Any]], made: Callable[..., dict[str, Any]]) -> F:
    """Add options, in this order; ``made`` makes the function's keywords of filters and of words for jobs."""

    @functools.wraps(function)
    def wrapped(
        users: Any, states: Any, names: Any, words: Sequence[JobWord] = (), everything: bool = False, **rest: Any
    ) -> object:
        filters = filters_of(users, states, names, everything=everything)
        return function(**made(filters=filters, words=words), **rest)

    result: Any = wrapped
    for option in reversed(options):
        result = option(result)
    return result  # type: ignore[no-any-return]  # click's own types say less


def with_job_selection(function: F, all_of: str = "All your jobs that have not ended.") -> F:
    """Add ``selection: Selection``, for `selected`.  ``all_of``: the help of --all."""
    return _with(function, _options(all_of), _some_selection)


def _some_selection(words: tuple[JobWord, ...], filters: Filters) -> dict[str, Any]:
    if words and filters.everything:
        raise click.UsageError("--all selects all jobs: leave out the other words.")
    if not (words or filters.everything or filters.narrow):
        raise click.UsageError(
            "which jobs? Write ids, ranges (3-7), names, patterns (train-*), @ for your last job, or --all."
        )
    return {"selection": Selection(words, filters)}


def with_listing_selection(function: F) -> F:
    """Add a selection that may be empty, for a command that lists jobs of all users with `listed`."""
    return _with(function, _options("All jobs, also those that ended long ago."), _any_selection)


def _any_selection(words: tuple[JobWord, ...], filters: Filters) -> dict[str, Any]:
    """Return a selection of jobs of all users, unless users are named."""
    return {"selection": Selection(words, replace(filters, users=None) if filters.users == () else filters)}


def filters_of(users: Sequence[str], states: Sequence[str], names: Sequence[str], *, everything: bool) -> Filters:
    """Combine the values of the filter options.  Raises click.UsageError."""
    return Filters(everything, _checked(job_filters.users, users), _checked(job_filters.states, states), tuple(names))


def _checked(parse: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> Any:
    try:
        return parse(texts)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def with_one_job(function: F) -> F:
    """Add ``job: JobWord``, for `the_job`."""
    result: Any = click.argument("job", type=JOB_WORD)(function)
    return result  # type: ignore[no-any-return]  # click's own types say less


def the_job(client: JobReader, word: JobWord) -> int:
    """Return the id of the one job that the word names.  Raises Problem where the word names none, or several."""
    found = ids_of(Listing(client), word, ANY)
    if len(found) == 1:
        return found[0]
    raise Problem(Exit.USAGE, "several_jobs", *several(client, word.text, found))


ANY = Filters(everything=False, users=(), states=(), names=())


def selected(
    client: DaemonClient,
    selection: Selection,
    phases: Sequence[str] = (),
    able: Callable[[JobInfo], bool] = lambda job: True,
) -> list[int]:
    """Return the ids that were selected, each once, in the order in which they were written.

    ``phases``, ``able``: the jobs that the command can act on; a name, a pattern or a range means such jobs only.
    Raises Problem where a word, or the options by themselves, select nothing.
    """
    listing, filters = Listing(client, phases, able), selection.filters
    if selection.words:
        return _named(listing, selection)
    among = listing.jobs() if filters.states else listing.active()
    ids = [job.id for job in filters.select(among)]
    return ids or _nothing(listing, filters, "")


def listed(client: JobReader, selection: Selection) -> list[JobInfo]:
    """The jobs that the words name, ordered by id.  Raises Problem where a word names none, and ApiError."""
    listing = Listing(client)
    ids = sorted(_named(listing, selection))
    known = {job.id: job for job in listing.every}
    return [known.get(number) or client.job(number) for number in ids]


def selected_ended(client: JobReader, selection: Selection, before_us: int) -> list[int]:
    """Return the ids of selected jobs that have ended, without jobs that ended after ``before_us``, wall clock.

    An id that was written stays, whatever has become of its job: the daemon says what is wrong with it.
    """
    listing, filters = Listing(client, ("ended",)), selection.filters
    ended = {job.id: job for job in listing.jobs()}
    chosen = [job.id for job in filters.select(ended.values())]
    found = _named(listing, selection) if selection.words else chosen
    young = {job.id for job in ended.values() if job.ended_us is not None and job.ended_us > before_us}
    return [number for number in found if number not in young]


def selected_failed(client: DaemonClient, selection: Selection) -> list[int]:
    """Return the ids of selected jobs that have ended without success, without jobs that were tried again.

    An id, or one element, that was written stays.
    """
    again = set[int | None]()
    listing = Listing(client, ("ended",), lambda job: job.outcome != "succeeded" and job.id not in again)
    again.update(job.retry_of for job in listing.every)
    if selection.words:
        return _named(listing, selection)
    found = [job.id for job in selection.filters.select(listing.jobs())]
    return found or _nothing(listing, selection.filters, "")


def _named(listing: Listing, selection: Selection) -> list[int]:
    """Return the ids that the words name, each once.  Raises Problem where a word names no job."""
    found = (number for word in selection.words for number in ids_of(listing, word, selection.filters))
    return list(dict.fromkeys(found))


def ids_of(listing: Listing, word: JobWord, filters: Filters) -> list[int]:
    """Return the ids of the jobs that one word names.  Raises Problem where the word names no job."""
    if isinstance(word, Numbers) and word.ids is not None and not filters.narrow:
        found = [number for each in word.ids for number in listing.expanded(each)]
        return found or _nothing(listing, filters, word.text)
    found = [job.id for job in _candidates(listing, word, filters) if filters.take(job)]
    return found or _nothing(listing, filters, word.text)


def _candidates(listing: Listing, word: JobWord, filters: Filters) -> list[JobInfo]:
    if isinstance(word, Last):
        return listing.last(word)
    if isinstance(word, Elements):
        return listing.elements(word)
    return [job for job in listing.jobs() if word.matches(job) and _may_mean(word, filters, job)]


def _may_mean(word: Numbers | Called, filters: Filters, job: JobInfo) -> bool:
    """Whether a word may mean the job: ids mean jobs of any user unless users are named, names the caller's own."""
    return filters.owned(job) or (isinstance(word, Numbers) and filters.users == ())


def _nothing(listing: Listing, filters: Filters, text: str) -> list[int]:
    raise Problem(Exit.NOT_FOUND, "no_such_job", *what_there_is(listing, filters, text))
