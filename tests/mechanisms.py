"""Which tests show which mechanism on which rig, and which of these rigs are in `make test`.

One rig shows a mechanism in `make test`, the others in `make test-all`; where more than one stays, the row says why.
`tests/mechanism_table.py` writes docs/verified.md from here, `tests/test_mechanisms.py` checks both.  Standard library
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: What shows a mechanism, the cheapest first.
RIGS = {
    "core": "the core, or parts of the daemon, in one process",
    "scripted": "a daemon with scripted jobs",
    "host": "a host device, jobs of PyTorch",
    "stub": "an emulated GPU, programs that call the driver",
    "pytorch": "an emulated GPU, PyTorch's CUDA build",
}
#: Takes milliseconds: what it shows stays beside another rig.
CHEAP = "core"


@dataclass(frozen=True)
class Mechanism:
    """``stays``: the rigs that show it in `make test`; ``why``: what one of them shows that another does not.

    ``tests`` by rig: ``file::function``, below `tests`; on a rig that stays, those of `make test`.
    """

    name: str
    stays: tuple[str, ...]
    tests: Mapping[str, tuple[str, ...]]
    why: str = ""


def _row(name: str, stays: str, why: str = "", **tests: str) -> Mechanism:
    """Words instead of tuples, without ``.py`` and ``test_``; ``also`` is the file of the test before."""
    return Mechanism(name, tuple(stays.split()), {rig: tuple(_ids(text)) for rig, text in tests.items()}, why)


def _ids(text: str) -> Iterator[str]:
    file = ""
    for word in text.split():
        named, _, function = word.partition("::")
        file = file if named == "also" else named
        yield f"{file}.py::test_{function}"


ARENA_AND_GATE = "in jobs on host devices and on GPUs different code moves memory and waits for turns"
DAEMON_AND_JOB = "scripted jobs show the moments, a real one that its results are right"
#: Files of which several rows name tests.
TRAINING, MODES, BROKEN = "cuda/pytorch/test_training", "cuda/pytorch/test_modes", "cuda/pytorch/test_faults"
MOVING, SEATS = "daemon/memory/test_oversubscription", "daemon/seats/test_seats"
OVERSUBSCRIBED = "e2e/test_oversubscribed"

MECHANISMS = (
    _row(
        "turns alternate, and results are those of a run alone, bit for bit",
        "scripted host pytorch",
        f"{DAEMON_AND_JOB}; {ARENA_AND_GATE}",
        core="core/test_turns::without_quantum_every_boundary_is_a_switch",
        scripted=f"{SEATS}::two_jobs_take_turns",
        host=f"e2e/test_identical::results_of_several_scripts_are_those_of_runs_alone "
        f"{OVERSUBSCRIBED}::switches_at_every_boundary",
        stub="cuda/test_sharing::jobs_that_take_turns_at_every_iteration also::replayed_graphs_find_their_memory",
        pytorch=f"{TRAINING}::families_of_models_in_turns also::contents_of_memory_in_turns",
    ),
    _row(
        "memory that does not fit moves out and comes back",
        "scripted host pytorch",
        f"{DAEMON_AND_JOB}; {ARENA_AND_GATE}",
        core="core/test_oversubscription::memory_comes_back_before_the_turn "
        "daemon/memory/test_copies::what_is_offloaded_comes_back",
        scripted=f"{MOVING}::three_jobs_take_turns_again_and_again "
        "daemon/test_cuda::jobs_that_do_not_fit_take_turns_with_the_memory",
        host=f"{OVERSUBSCRIBED}::switches_at_every_boundary",
        stub="cuda/test_memory::jobs_that_exceed_the_device_together_move also::memory_that_comes_and_goes_in_turns",
        pytorch=f"{TRAINING}::contents_of_memory_that_moves",
    ),
    _row(
        "a job's memory is closed between its turns, for debugging",
        "core",
        core="daemon/memory/test_extents::a_job_is_told_whether_to_close_its_memory_between_turns",
        stub="cuda/test_sharing::memory_that_is_closed_between_turns",
        pytorch=f"{MODES}::memory_that_is_closed_between_turns",
    ),
    _row(
        "a job that is killed in its turn harms no other",
        "scripted host pytorch",
        f"{DAEMON_AND_JOB}; {ARENA_AND_GATE}",
        core="core/test_turns::the_holder_dies_and_the_next_one_computes_at_once",
        scripted=f"{SEATS}::a_job_killed_in_its_turn_gives_it_back_at_once",
        host="e2e/test_neighbours::a_job_killed_inside_its_turn_harms_nobody",
        stub="cuda/test_faults::a_job_that_is_killed_does_not_harm_the_others",
        pytorch=f"{TRAINING}::contents_outlive_the_daemon_and_a_neighbour",
    ),
    _row(
        "a job that is killed while its memory moves harms no other",
        "scripted",
        scripted=f"{MOVING}::a_job_killed_while_it_moves",
        host="e2e/test_moving_faults::jobs_killed_while_they_are_moved",
    ),
    _row(
        "jobs outlive a kill of the daemon",
        "scripted pytorch",
        DAEMON_AND_JOB,
        core="core/lifecycle/test_adoption::what_runs_goes_on_and_what_waits_is_started",
        scripted="daemon/test_crash::killed_at_random_points_under_load_nothing_is_lost "
        f"{SEATS}::a_restarted_daemon_takes_the_seats_over",
        stub="cuda/test_faults::jobs_survive_the_daemon",
        pytorch=f"{TRAINING}::contents_outlive_the_daemon_and_a_neighbour",
    ),
    _row(
        "jobs outlive a kill of the daemon while memory moves",
        "scripted",
        core="core/lifecycle/test_adoption::an_offloaded_job_comes_back_with_what_it_had",
        scripted=f"{MOVING}::the_daemon_is_killed_while_a_job_moves "
        "daemon/test_cuda::a_daemon_that_is_killed_while_it_copies",
        host="e2e/test_moving_faults::the_daemon_killed_while_jobs_are_moved",
    ),
    _row(
        "the device agent of a GPU is killed",
        "stub",
        core="daemon/checkpoint/test_jobs::an_agent_that_fails_is_no_loss",
        stub="cuda/test_faults::jobs_survive_the_agent",
    ),
    _row(
        "a job that is stopped in its turn lets go of it",
        "scripted",
        core="daemon/sigstop/test_watchdog::with_a_turn_it_runs_until_it_has_let_go",
        scripted="daemon/sigstop/test_joined_pauses::a_stopped_holder_has_a_second_and_not_the_lease",
        host="e2e/test_stopped::a_stopped_holder",
        pytorch=f"{BROKEN}::jobs_are_stopped_at_random_moments",
    ),
    _row(
        "the memory of a job that is stopped serves others",
        "scripted stub",
        "in a job on a GPU the segments have to follow memory that was moved without it",
        scripted=f"{MOVING}::a_stopped_job_without_a_turn_is_taken_by_its_shim "
        "daemon/test_cuda::a_stopped_job_keeps_nobody_waiting",
        host="e2e/test_stopped::a_stopped_idle_job_that_is_on_the_device also::a_job_stopped_while_it_is_moved",
        stub="cuda/test_faults::the_memory_of_a_job_that_is_stopped_serves_others",
    ),
    _row(
        "a turn is taken by force",
        "host stub",
        ARENA_AND_GATE,
        core="core/test_turns::a_holder_that_ignores_the_request_is_forced",
        host="e2e/test_neighbours::a_job_without_any_boundary_is_made_to_give_way",
        stub="cuda/test_services::a_service_that_keeps_its_turn_loses_it_and_computes_right",
        pytorch=f"{BROKEN}::turns_are_taken_by_force_at_random_moments",
    ),
    _row(
        "more than the device has is refused, to that job only",
        "scripted host stub",
        f"{DAEMON_AND_JOB}; {ARENA_AND_GATE}",
        core="core/test_memory::only_what_would_not_fit_alone_is_denied",
        scripted=f"{SEATS}::more_than_the_device_is_denied",
        host="e2e/test_neighbours::a_job_that_needs_more_than_the_device_alone_sees_it",
        stub="cuda/test_memory::what_does_not_fit_alone_is_refused_to_this_job_only",
        pytorch=f"{BROKEN}::memory_that_is_refused_for_good",
    ),
    _row(
        "where growth is refused, memory that is not free is not waited for",
        "core",
        core="core/test_packed::what_another_job_of_the_lane_needs_stays",
        stub="cuda/test_recovery::where_growth_is_refused_the_one_that_grew_comes_back_when_the_other_has_ended",
    ),
    _row(
        "a job that has run out of memory comes back where there is more",
        "scripted host stub",
        "the arena, the gate, the driver and logs tell of it in different ways",
        core="core/lifecycle/test_retry::a_job_that_ran_out_of_memory_comes_back_alone_with_more_before_all_others",
        scripted="daemon/jobs/test_recovery::a_job_that_ran_out_of_memory_is_started_again_alone_and_once",
        host="e2e/test_recovery::it_comes_back_alone_and_its_neighbours_are_unharmed",
        stub="cuda/test_recovery::a_gated_job_comes_back_on_a_larger_device "
        "also::an_exclusive_job_that_its_driver_refuses_comes_back_on_a_larger_device "
        "also::a_program_that_carpool_is_not_in_is_known_by_its_log",
        pytorch=f"{BROKEN}::what_runs_out_of_memory_beside_another_comes_back_by_itself",
    ),
    _row(
        "a cache gives way before a job waits for memory",
        "host pytorch",
        ARENA_AND_GATE,
        core="daemon/memory/test_withdrawals::the_core_hears_of_it_and_refuses",
        host="e2e/test_withdrawn::another_class_can_be_had_instead",
        pytorch="cuda/pytorch/test_memory::a_cache_makes_room_without_a_warning",
    ),
    _row(
        "memory that other programs take is waited for",
        "scripted stub",
        "a driver refuses what is not there, whatever was measured",
        core="core/test_foreign::a_request_waits_for_it_and_is_not_refused",
        scripted="daemon/memory/test_other_programs::jobs_leave_when_others_grow_and_come_back_when_they_go",
        stub="cuda/test_memory::what_a_foreign_process_has_taken_is_waited_for "
        "cuda/test_recovery::a_foreign_process_that_grows_is_waited_for",
    ),
    _row(
        "training beside services notices nothing",
        "host",
        core="core/turns/test_services::a_service_pauses_the_holder_computes_and_lets_it_go_on",
        host="e2e/test_services::training_beside_a_service_is_bit_identical",
        stub="cuda/test_services::training_beside_a_service_is_bit_identical",
        pytorch="cuda/pytorch/test_serving::training_beside_models",
    ),
    _row(
        "weights that do not fit together take turns",
        "host",
        core="core/turns/test_weights::weights_leave_before_anybody_waits",
        host="e2e/test_services::weights_that_do_not_fit_together_take_turns",
        stub="cuda/test_services::weights_that_do_not_fit_together_take_turns",
        pytorch="cuda/pytorch/test_serving::many_models",
    ),
    _row(
        "a service that keeps its turn loses it",
        "stub",
        core="core/turns/test_services::a_service_is_not_asked_for_its_turn_before_it_has_kept_it_for_too_long",
        scripted="daemon/sigstop/test_joined_pauses::a_service_that_keeps_its_turn_is_killed",
        host="e2e/test_services::a_service_that_keeps_its_turn_loses_it_and_computes_right",
        stub="cuda/test_services::a_service_that_keeps_its_turn_loses_it_and_computes_right",
    ),
    _row(
        "services outlive a kill of the daemon",
        "stub",
        core="core/turns/test_services::after_a_restart_a_service_computes_on",
        host="e2e/test_services::services_outlive_the_daemon",
        stub="cuda/test_services::services_outlive_the_daemon",
    ),
    _row(
        "a worker that is killed takes no weights along",
        "stub",
        core="core/turns/test_services::when_a_service_dies_the_others_go_on",
        stub="cuda/test_services::a_killed_worker_takes_no_weights_along",
    ),
    _row(
        "a paused job leaves its device and comes back as it was",
        "scripted host",
        DAEMON_AND_JOB,
        core="core/memory/test_pausing::a_paused_job_loses_its_turn_and_leaves_the_device",
        scripted="daemon/jobs/test_pausing::a_paused_job_leaves_the_device_and_comes_back_as_it_was",
        host="e2e/test_stopped::a_paused_job_computes_the_same",
    ),
    _row(
        "a process joins as a job, and stays one over a kill of the daemon",
        "host",
        host="e2e/test_joining::a_process_is_a_job_beside_a_submitted_one also::it_goes_on_after_kills_of_the_daemon",
        pytorch="cuda/pytorch/test_joining::contents_beside_a_submitted_job_over_a_kill_of_the_daemon",
    ),
    _row(
        "a gang has all of its devices to itself",
        "scripted stub",
        DAEMON_AND_JOB,
        core="core/placement/filters/test_gang::it_has_all_its_devices_to_itself_and_a_seat_on_the_first "
        "also::all_or_nothing",
        scripted="daemon/api/test_placement::it_holds_them_over_a_restart_and_gives_them_back",
        stub="cuda/test_gangs::one_process_uses_all_its_devices_and_no_others "
        "also::a_gang_waits_for_devices_of_its_own also::a_gang_that_is_ended_leaves_all_its_devices "
        "also::a_gang_keeps_its_devices_over_a_restart_of_the_daemon",
        pytorch="cuda/pytorch/test_loops::ranks_on_two_devices",
    ),
    _row(
        "several processes of a job on one GPU have it to themselves",
        "stub",
        core="core/test_lifecycle::what_they_have_stays_theirs "
        "daemon/channels/test_secondary::it_waits_for_the_turn_of_a_job_without_a_seat",
        stub="cuda/test_companions::two_processes_have_the_device_to_themselves "
        "also::a_companion_that_is_killed_harms_nobody also::companions_survive_the_daemon "
        "cuda/test_forked::workers_have_the_device_to_themselves",
        pytorch=f"{MODES}::a_child_process_takes_turns "
        "cuda/pytorch/test_loops::tensors_that_are_passed_between_processes",
    ),
    _row(
        "what a launcher starts has the job's seat",
        "host stub",
        ARENA_AND_GATE,
        host="e2e/test_launchers::what_a_launcher_starts_has_the_seat",
        stub="cuda/test_companions::what_a_launcher_starts_shares_the_device "
        "cuda/test_gangs::torchrun_with_a_rank_for_each_device",
    ),
    _row(
        "checkpoint jobs take turns, and outlive the daemon",
        "stub",
        core="core/turns/test_exclusive_turns::its_turn_has_the_whole_device also::two_of_them_take_turns",
        stub="cuda/test_checkpoint::it_takes_turns_with_others also::it_survives_the_daemon_while_it_is_suspended "
        "also::it_is_cancelled_while_it_is_suspended also::one_that_the_driver_cannot_suspend_keeps_its_device",
        pytorch=f"{MODES}::a_checkpoint_job",
    ),
    _row(
        "a resume takes what was measured, or the job is killed",
        "stub",
        core="core/turns/test_exclusive_turns::less_than_was_measured_is_never_reserved_for_a_resume",
        stub="cuda/test_resume::a_resume_takes_what_was_measured "
        "also::one_that_cannot_be_restored_is_killed_and_the_others_go_on",
    ),
    _row(
        "a job that has to be alone on its device is",
        "scripted stub",
        "submitted so, or found out by the gate",
        core="core/memory/test_exclusive::the_others_wait_until_it_has_ended",
        scripted=f"{SEATS}::an_exclusive_job_waits_for_the_others_and_they_for_it",
        stub="cuda/test_sharing::an_exclusive_job_has_the_drivers_own_memory "
        "also::much_memory_of_the_drivers_own_keeps_the_others_waiting "
        "also::work_of_another_interface_keeps_the_others_waiting",
        pytorch=f"{MODES}::much_memory_from_the_driver_keeps_the_others_waiting",
    ),
    _row(
        "a process that Carpool is not in is found out",
        "stub",
        core="daemon/telemetry/test_ungated_processes::after_two_samples_and_until_it_is_gone",
        stub="cuda/test_ungated::a_process_beside_carpool_has_the_device_to_itself",
        pytorch=f"{MODES}::what_computes_outside_of_carpool_is_exclusive",
    ),
    _row(
        "lanes compute side by side",
        "stub",
        core="core/test_turns::lanes_have_a_turn_each",
        stub="cuda/test_sharing::jobs_in_two_lanes_compute_side_by_side",
        pytorch=f"{MODES}::two_lanes_side_by_side",
    ),
    _row(
        "jobs of unknown memory are measured, and share",
        "stub",
        core="core/test_memory::one_unknown_job_grows_at_a_time",
        stub="cuda/test_sharing::jobs_of_unknown_memory_are_measured_and_share",
    ),
    _row(
        "a job that is cancelled leaves nothing",
        "scripted stub",
        "a GPU's memory is free only when the driver says so",
        core="core/test_lifecycle::cancel_terminates_then_kills",
        scripted="daemon/api/test_jobs::cancel_ends_a_stubborn_job_with_its_grandchildren",
        stub="cuda/test_faults::a_job_that_is_cancelled_leaves_nothing",
    ),
)
