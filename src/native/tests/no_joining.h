/* What the parts of the library ask of joining (job/join.c), in programs without it: nothing joins. */
#ifndef CARPOOL_TEST_NO_JOINING_H
#define CARPOOL_TEST_NO_JOINING_H
#include "base/process.h"

bool cp_joins(void) { return false; }
int cp_join_now(void) { return -1; }
void cp_join_seated(bool seated) { (void)seated; }
bool cp_join_interrupted(void) { return false; }
bool cp_join_readable(int fd) { return fd >= 0; }
void cp_join_before_fork(void) {}
void cp_join_after_fork(bool child) { (void)child; }
#endif
