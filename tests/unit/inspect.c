/* What a host answers when it is looked at, and what that means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ssh/base/mem.h"
#include "ssh/launch/inspect_facts.h"
#include "ssh/launch/script.h"

static const char good[] = "os=Ubuntu 22.04\nmachine=x86_64\nglibc=glibc 2.35\ncpus=16\nmemory=65000000\ndisk=90000000\nfiles=1048576\n"
                           "gpu=NVIDIA H100 80GB, 81559, 80994, 535.104.05, 9.0\ngpu_users=0\n";

static bool says(const char words[][INSPECT_WORD], int count, const char *text)
{
    for (int i = 0; i < count; i++)
        if (strstr(words[i], text))
            return true;
    return false;
}

static unsigned needs_glibc; /* of the programs */

static struct inspect_host *look(const char *output, const char *our_glibc)
{
    struct inspect_host *found = mem_new(sizeof *found);
    inspect_read_facts(output, found);
    inspect_judge(found, &(struct inspect_needs){.disk_kib = 1000000, .glibc = needs_glibc, .bf16 = true}, our_glibc);
    return found;
}

static void a_good_host_is_good(void **unused)
{
    (void)unused;
    struct inspect_host *found = look(good, "2.35");
    assert_int_equal(found->problem_count, 0);
    assert_int_equal(found->note_count, 0);
    assert_int_equal(found->cpus, 16);
    assert_int_equal(found->gpu_count, 1);
    assert_string_equal(found->gpus[0].name, "NVIDIA H100 80GB");
    assert_string_equal(found->gpus[0].compute, "9.0");
    assert_int_equal(found->gpus[0].total_mib, 81559);
    mem_free(found);
}

static void what_is_wrong_is_said_with_its_remedy(void **unused)
{
    static const struct {
        const char *output, *words;
        bool problem;
    } rows[] = {
        {"machine=aarch64\nglibc=glibc 2.35\n", "do not run there", true},
        {"machine=x86_64\nglibc=\n", "need glibc", true},
        {"machine=x86_64\nglibc=glibc 2.31\n", "older than the glibc 2.36 here", false},
        {"machine=x86_64\nglibc=glibc 2.36\ndisk=1000\n", "delete something there", true},
        {"machine=x86_64\nglibc=glibc 2.36\nfiles=256\n", "limits.conf", true},
        {"machine=x86_64\nglibc=glibc 2.36\nkills=1\n", "loginctl enable-linger", true},
        {"machine=x86_64\nglibc=glibc 2.36\nlacks=flock\n", "the program flock is not there", true},
        {"machine=x86_64\nglibc=glibc 2.36\ngpu_users=3\n", "3 other programs use its GPU", false},
        {"machine=x86_64\nglibc=glibc 2.36\ngpu=Tesla T4, 15360, 15000, 535.1, 7.5\n", "capability 7.5, and bf16 wants 8.0", false},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct inspect_host *found = look(rows[i].output, "2.36");
        bool said = rows[i].problem ? says(found->problems, found->problem_count, rows[i].words)
                                    : says(found->notes, found->note_count, rows[i].words);
        if (!said)
            fail_msg("'%s' does not lead to '%s'", rows[i].output, rows[i].words);
        mem_free(found);
    }
}

/* 8192 KiB are the run's own. */
static void a_budget_is_held_against_what_is_there_and_comes(void **unused)
{
    static const struct {
        const char *output, *words; /* words NULL: it fits */
    } rows[] = {
        {"disk=90000000\nused=1024\nmissing=1024\n", NULL},
        {"disk=90000000\nused=4096\nmissing=8192\n", "4.0 MiB there, 8.0 MiB would be sent, and the run would write up to 8.0 MiB: more than its disk_budget of 16.0 MiB; raise"},
        {"disk=9216\nused=2048\nmissing=0\n", "may have 16.0 MiB of its disk (disk_budget) and has 2.0 MiB, but only 9.0 MiB are free: lower the budget"},
        {"disk=14336\nused=2048\nmissing=0\n", NULL},
    };
    static const struct profile_host host = {.name = "a", .disk_budget = 16 << 20};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct inspect_host *found = mem_new(sizeof *found);
        char *output = mem_format("machine=x86_64\nglibc=glibc 2.36\n%s", rows[i].output);
        found->host = &host;
        found->room.run = 8192;
        inspect_read_facts(output, found);
        inspect_judge(found, &(struct inspect_needs){0}, "2.36");
        assert_int_equal(found->problem_count, rows[i].words != NULL);
        if (rows[i].words && !says(found->problems, 1, rows[i].words))
            fail_msg("not '%s' but '%s'", rows[i].words, found->problems[0]);
        mem_free(output);
        mem_free(found);
    }
}

/* What counts is what the programs ask for, not where they were built. */
static void an_older_c_library_is_refused_with_both_versions(void **unused)
{
    static const struct {
        const char *glibc;
        int problems;
    } rows[] = {{"glibc 2.17", 1}, {"glibc 2.33", 1}, {"glibc 2.34", 0}, {"glibc 2.40", 0}, {"glibc 3.0", 0}};
    (void)unused;
    needs_glibc = 2034;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *output = mem_format("machine=x86_64\nglibc=%s\n", rows[i].glibc);
        struct inspect_host *found = look(output, "2.36");
        assert_int_equal(found->problem_count, rows[i].problems);
        assert_int_equal(found->note_count, 0);
        if (rows[i].problems)
            assert_true(says(found->problems, 1, rows[i].glibc) && says(found->problems, 1, "older than the glibc 2.34 that the programs here need"));
        mem_free(found);
        mem_free(output);
    }
    needs_glibc = 0;
}

static void a_clock_that_is_off_is_told(void **unused)
{
    struct inspect_host *found = mem_new(sizeof *found);
    (void)unused;
    found->has_offset = true;
    found->offset_seconds = 0.3;
    inspect_judge_clock(found);
    assert_int_equal(found->note_count, 0);
    found->offset_seconds = -300;
    inspect_judge_clock(found);
    assert_true(says(found->notes, found->note_count, "300.0 s behind ours"));
    mem_free(found);
}

static void nonsense_is_harmless(void **unused)
{
    (void)unused;
    struct inspect_host *found = look("gpu=\ngpu=,,,,\ncpus=-3\ncpus=many\nfiles=\nos=\033[2J\n====\nmemory\ngpu=a,b,c,d,e,f\n", "2.36");
    assert_int_equal(found->cpus, 0);
    assert_null(strchr(found->os, '\033'));
    mem_free(found);
}

static void scripts_take_no_commands_from_addresses(void **unused)
{
    static const char *const bad[] = {"1.2.3.4'; rm -rf ~; ':80", "$(id):80", "host:80;id"};
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *listen = inspect_listen_script(bad[i], 5), *dial = inspect_dial_script(bad[i]), *facts = inspect_facts_script(bad[i]);
        char *measure = inspect_measure_script("dial", bad[i], 5);
        assert_null(strstr(listen, "rm -rf"));
        assert_null(strstr(dial, "$(id)"));
        assert_null(strstr(dial, ";id"));
        assert_non_null(strstr(facts, "N='';"));
        assert_true(!strstr(measure, "rm -rf") && !strstr(measure, "$(id)") && !strstr(measure, ";id"));
        mem_free(listen);
        mem_free(dial);
        mem_free(facts);
        mem_free(measure);
    }
}

static void facts_of_a_start_are_checked(void **unused)
{
    struct script_facts facts;
    struct why why = {0};
    (void)unused;
    assert_int_equal(script_read_facts("run=/r\ndata=/d\nmachine=x86_64\nold=00000000000000ff\nliving=2\npid=77\n", &facts, &why), 0);
    assert_int_equal(facts.old_run_id, 255);
    assert_int_equal(facts.old_living, 2);
    assert_int_equal(facts.old_pid, 77);
    assert_int_equal(script_read_facts("run=r\ndata=/d\n", &facts, &why), ERR_INVALID);
    why = (struct why){0};
    assert_int_equal(script_read_facts("run=/r\ndata=/my disk\n", &facts, &why), ERR_INVALID);
    why = (struct why){0};
    assert_int_equal(script_read_facts("run=/r\ndata=/d\nlacks=tar\n", &facts, &why), ERR_INVALID);
    assert_non_null(strstr(why.text, "lacks the program tar"));
    why = (struct why){0};
    assert_int_equal(script_read_facts("Welcome!\n", &facts, &why), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_host_is_good),
        cmocka_unit_test(a_budget_is_held_against_what_is_there_and_comes),
        cmocka_unit_test(what_is_wrong_is_said_with_its_remedy),
        cmocka_unit_test(an_older_c_library_is_refused_with_both_versions),
        cmocka_unit_test(a_clock_that_is_off_is_told),
        cmocka_unit_test(nonsense_is_harmless),
        cmocka_unit_test(scripts_take_no_commands_from_addresses),
        cmocka_unit_test(facts_of_a_start_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
