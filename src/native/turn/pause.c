/* Pauses: a service needs the device.  The holder is closed and keeps its turn; nothing is saved, because nobody else gets
 * its lane meanwhile.  So a pause costs what closing costs, at whatever instruction it comes. */
#include "base/process.h"

/* What the daemon asks, while that keeps the holder from its memory: to pause, or, of one that has, to let go; else NO. */
static uint32_t held_back(void) {
  uint32_t yield = cp_load(&cp.seat->yield);
  bool paused = cp_load(&cp.seat->paused);
  return yield == CP_YIELD_PAUSE || (yield == CP_YIELD_NOW && paused) ? yield : CP_YIELD_NO;
}

/* Gate lock and turn held.  True: the lock has been released, and something may have changed. */
bool cp_pause_waited(void) {
  uint32_t asked = held_back();
  if (asked == CP_YIELD_NO) {
    cp_store(&cp.seat->paused, 0);
    return false;
  }
  cp_release(&cp.gate_lock);
  cp_await_daemon(&cp.seat->yield, asked);
  return true;
}

/* Helper thread.  False: it could not be closed just now. */
bool cp_pause(void) {
  struct cp_seat *s = cp.seat;
  cp_acquire(&cp.gate_lock);
  uint32_t number = cp_load(&s->pause_seq);
  bool due = cp_load(&s->turn) && cp_load(&s->yield) == CP_YIELD_PAUSE && cp_load(&s->paused) != number;
  bool closed = due && (cp.gate == CP_CLOSED || cp.backend->shut());
  if (closed) cp_store(&s->paused, number);
  cp_release(&cp.gate_lock);
  if (closed) cp_send(CP_PAUSED, number, 0, 0, 0);
  return closed || !due;
}

/* Gate lock held.  The turn is over: who waited for the end of the pause waits for the next turn. */
void cp_pause_over(void) {
  if (!cp_load(&cp.seat->paused)) return;
  cp_store(&cp.seat->paused, 0);
  cp_futex_wake(&cp.seat->yield);
}
