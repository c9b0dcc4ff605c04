#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault at a time in the planner or the parsers and sees that a test turns red.

    mutate.py --list
    mutate.py NAME --source ROOT --build DIR --compiler CXX    plant NAME; exit 0 when the tests catch it

A planner mutant is a changed copy of a header, found before the real one; the named test is compiled against it. A
parser mutant is a changed copy of a source file, linked before the library. The unchanged test is part of the suite, so
a mutant that does not compile, or whose text is no longer in the file, is an error here, not a catch.
"""
import argparse
import os
import shlex
import shutil
import subprocess
import sys

PLAN = "include/darlcore/plan/"
SLURM = "backends/slurm/"

# name: (file, old text, new text, test source that must turn red)
MUTANTS = {
    # waits
    "the_discount_has_no_floor": (PLAN + "estimate.hpp", "std::max(*gamma, gamma_floor)", "*gamma", "tests/plan/small_vectors_test.cpp"),
    "a_negative_wait_is_taken": (PLAN + "estimate.hpp", "if (!(std::isfinite(wait_s) && wait_s >= 0))", "if (std::isnan(wait_s))", "tests/plan/small_vectors_test.cpp"),
    "percentiles_do_not_interpolate": (PLAN + "estimate.hpp", "values[below] + share * (values[above] - values[below])", "values[below]", "tests/plan/small_vectors_test.cpp"),
    "a_runaway_job_lifts_gamma": (PLAN + "usage.hpp", "std::min(j.elapsed_s, j.limit_s)", "j.elapsed_s", "tests/plan/small_vectors_test.cpp"),
    "gamma_counts_jobs_not_node_time": (PLAN + "usage.hpp", "u.gamma = u.node_s_used / u.node_s_limit;", "u.gamma = percentile(ratios, 0.5);", "tests/plan/small_vectors_test.cpp"),
    "a_reservation_is_discounted": (PLAN + "estimate.hpp", "e.gamma.has_value() && !o.reservation_bound", "e.gamma.has_value()", "tests/slurm/cases_test.cpp"),
    # waterfill
    "the_startup_is_free": (PLAN + "capacity.hpp", "startup_h_(s.startup_h),", "startup_h_(0),", "tests/plan/waterfill_test.cpp"),
    "a_link_may_be_longer_than_the_walltime": (PLAN + "capacity.hpp", "std::min(s.link_h, s.walltime_h)", "s.link_h", "tests/plan/waterfill_test.cpp"),
    "a_minimum_above_the_work_is_assigned": (PLAN + "waterfill.hpp", "if (s.min_units > r.units) {", "if (false) {", "tests/plan/waterfill_test.cpp"),
    "ties_are_given_back_by_the_earlier_site": (PLAN + "waterfill.hpp", "return a->site->site->site > b->site->site->site;", "return a->site->site->site < b->site->site->site;", "tests/plan/waterfill_vectors_test.cpp"),
    "more_is_assigned_than_is_needed": (PLAN + "waterfill.hpp", "    drop_unneeded(f, goal);\n", "", "tests/plan/waterfill_vectors_test.cpp"),
    # rounds and campaign
    "balance_rounds_down": (PLAN + "round_cost.hpp", "std::floor(slowest / step_s[i] + 0.5)", "std::floor(slowest / step_s[i])", "tests/plan/small_vectors_test.cpp"),
    "a_cold_join_costs_nothing": (PLAN + "campaign_run.hpp", "d.stall_s = m_.join_stall_s;", "d.stall_s = 0;", "tests/plan/campaign_test.cpp"),
    "a_leaver_uploads_for_free": (PLAN + "campaign_run.hpp", "add(m_.lanes[i].cost.transfer_s);", ";", "tests/plan/campaign_test.cpp"),
    "two_lanes_of_a_site_are_federated": (PLAN + "campaign_run.hpp", "std::popcount(sites) >= 2", "std::popcount(trainers) >= 2", "tests/plan/campaign_test.cpp"),
    "the_last_blocks_are_left_over": (PLAN + "campaign_run.hpp", "ending_ = true;", ";", "tests/plan/campaign_test.cpp"),
    "rounds_may_end_after_the_job": (PLAN + "campaign_run.hpp", "const double end = t_ + d.period_s + c_.leave_margin_s;", "const double end = t_;", "tests/plan/campaign_test.cpp"),
    "a_trace_is_drawn_twice_a_round": (PLAN + "campaign_run.hpp", "round_ += n;", "round_ += 2 * n;", "tests/plan/campaign_test.cpp"),
    # search, draws, queue
    "the_search_prunes_too_early": (PLAN + "search.hpp", "return sum < target_;", "return sum < 1.5 * target_;", "tests/plan/search_test.cpp"),
    "the_greedy_plan_is_not_improved": (PLAN + "greedy.hpp", "while (auto next = best_change()) take(std::move(*next));", "", "tests/plan/search_test.cpp"),
    "old_jobs_weigh_as_much_as_new_ones": (PLAN + "trace.hpp", "std::exp2(-std::max(0.0, t.now_s - j.start_s) / t.half_life_s)", "1.0", "tests/plan/monte_carlo_test.cpp"),
    "backfill_delays_the_head": (PLAN + "queue_sim.hpp", "(before || jobs_[j].nodes <= extra)", "true", "tests/plan/queue_sim_test.cpp"),
    "a_gpu_is_given_twice": (PLAN + "queue_policies.hpp", "if (used_at(start) + gpus > gpus_) return false;", "", "tests/plan/queue_policies_test.cpp"),
    "conservative_promises_are_made_anew": (PLAN + "queue_policies.hpp", "if (c_.policy != shared_policy::conservative)\n            for", "for", "tests/plan/queue_policies_test.cpp"),
    # parsers
    "a_start_years_ahead_is_believed": (SLURM + "test_only.cpp", "if (ahead > ahead_max_s) {", "if (false) {", "tests/slurm/cases_test.cpp"),
    "a_start_in_the_past_is_believed": (SLURM + "test_only.cpp", "if (ahead < -past_max_s) {", "if (false) {", "tests/slurm/cases_test.cpp"),
    "the_first_candidate_of_a_federation_wins": (SLURM + "test_only.cpp", "verdict = v->second;", "if (verdict.empty()) verdict = v->second;", "tests/slurm/cases_test.cpp"),
    "group_limits_are_permanent": (SLURM + "test_only.cpp", "starts_with(name, \"QOSGrp\") || starts_with(name, \"AssocGrp\")", "false", "tests/slurm/cases_test.cpp"),
    "any_limit_is_temporary": (SLURM + "test_only.cpp", "return probe_class::permanent_limit;\n}", "return probe_class::temporary_limit;\n}", "tests/slurm/cases_test.cpp"),
    "local_time_counts_as_utc": (SLURM + "text.cpp", "if (!iso->has_offset && !assume_utc)", "if (false)", "tests/slurm/cases_test.cpp"),
    "jobs_that_never_started_count": (SLURM + "accounting.cpp", "if (elapsed.seconds == 0) return \"never_started\";", "", "tests/slurm/cases_test.cpp"),
    "jobs_outside_the_window_count": (SLURM + "accounting.cpp", "if (end.epoch_s < o.window_start_s || end.epoch_s > o.window_end_s) return \"outside_window\";", "", "tests/slurm/cases_test.cpp"),
    "any_character_may_stand_in_an_argument": (PLAN + "argument.hpp", "return alnum || std::string_view", "return true || std::string_view", "tests/plan/small_vectors_test.cpp"),
    "a_shape_takes_any_character": (SLURM + "shape.cpp", "if (!plan::is_plain_argument(text))", "if (false)", "tests/slurm/collector_test.cpp"),
    "a_node_range_is_one_shape": (SLURM + "shape.cpp", "if (contains(nodes, \"-\") && nodes.front() != '-')", "if (false)", "tests/slurm/cases_test.cpp"),
    "the_environment_of_a_job_leaks": (SLURM + "runner.cpp", "starts_with(e, \"SBATCH_\") ||", "", "tests/slurm/runner_test.cpp"),
    "the_token_reaches_the_batch_system": (SLURM + "runner.cpp", "starts_with(e, \"DARL_TOKEN=\")", "false", "tests/slurm/runner_test.cpp"),
    "a_record_sent_again_is_kept_twice": (SLURM + "probe_store.cpp", "if (ids_.count(key_of(r)) != 0 || ", "if (", "tests/slurm/probe_store_test.cpp"),
    "a_prediction_is_discounted_by_the_newest_gamma": (SLURM + "probe_store.cpp", "s.type == \"start\" || s.collected_s > submit_s", "s.type == \"start\" || (!usage && s.collected_s > submit_s)", "tests/slurm/probe_store_test.cpp"),
    "old_months_are_not_looked_at": (SLURM + "probe_store.cpp", "read_file(file_of(r), now_s, true);  // an old record sent again is found in its month", "", "tests/slurm/probe_store_test.cpp"),
}


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def compiled(compiler, flags, source, out):
    done = run(compiler + flags + ["-c", source, "-o", out])
    if done.returncode != 0:
        raise SystemExit(f"{source} does not compile:\n{done.stdout[-4000:]}")
    return out


def plant(name, root, folder):
    """The changed copy, and what must stand before the real includes."""
    path, old, new, _ = MUTANTS[name]
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    if text.count(old) != 1:
        raise SystemExit(f"{name}: its text stands {text.count(old)} times in {path}; adapt the list")
    inside = path[len("include/"):] if path.startswith("include/") else path
    copy = os.path.join(folder, inside)
    os.makedirs(os.path.dirname(copy))
    with open(copy, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    return copy


def verdict(name, root, build, compiler):
    path, _, _, test = MUTANTS[name]
    folder = os.path.join(build, "mutants", name)  # the same path each time: a compiler cache then knows the result
    shutil.rmtree(folder, ignore_errors=True)
    try:
        copy = plant(name, root, folder)
        flags = ["-std=c++20", "-O0", "-w", "-I", folder, "-I", root, "-I", os.path.join(root, "include"),
                 f'-DDARLCORE_TEST_DATA="{root}/tests/data"']
        objects = [compiled(compiler, flags, os.path.join(root, test), os.path.join(folder, "test.o"))]
        if not path.startswith("include/"):
            objects.append(compiled(compiler, flags, copy, os.path.join(folder, "mutant.o")))
        program = os.path.join(folder, "program")
        libraries = [os.path.join(build, "backends/slurm/libdarlcore_slurm.a"), os.path.join(build, "adapters/formats/libdarlcore_json.a")]
        linked = run(compiler[-1:] + objects + libraries + ["-lsimdjson", "-lgtest", "-lgtest_main", "-lpthread", "-o", program])
        if linked.returncode != 0:
            raise SystemExit(f"{name} does not link:\n{linked.stdout[-4000:]}")
        try:
            told = run([program, "--gtest_fail_fast"], timeout=240, env=dict(os.environ, DARLCORE_PROPERTY_BUDGET="small"))
        except subprocess.TimeoutExpired:
            return True, "it hangs"
        return told.returncode != 0, told.stdout[-2000:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", nargs="*")
    p.add_argument("--list", action="store_true")
    p.add_argument("--source", default=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    p.add_argument("--build", default="build/dev")
    p.add_argument("--compiler", default="c++", help="with its launcher, if any, separated by blanks")
    a = p.parse_args()
    if a.list:
        print("\n".join(MUTANTS))
        return 0
    survived = 0
    for name in a.name or MUTANTS:
        caught, told = verdict(name, os.path.abspath(a.source), os.path.abspath(a.build), shlex.split(a.compiler))
        print(f"{'caught' if caught else 'SURVIVED'}: {name}")
        if not caught:
            survived += 1
            print(told)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
