/* Folder abi/: what other programs rely on: the records that the library shares with the daemon, and the names that it
 * exports.  Only layouts and constants enter whose change is a change of the protocol.
 * May include: nothing. */
/* The seat: one shared-memory record per job process.  Mirrored by src/carpool/protocol/seat.py.
 *
 * A seat table ("board" in names) is a memfd that holds one page of header and then CP_SEATS seats.  There is one per
 * device and owner; every job of that owner on that device maps it, so that a job can hand its turn to the next directly.
 * Each word has one writer at a time, named on its right.  Words are naturally aligned and accessed atomically. */
#ifndef CARPOOL_SEAT_H
#define CARPOOL_SEAT_H
#include <stdint.h>

#define CP_BOARD_MAGIC 0x4452424cu /* "LBRD" */
#define CP_PROTOCOL 2u
#define CP_SEATS 4096u
#define CP_BOARD_HEADER 4096u

struct cp_board_header {
  uint32_t magic;    /* daemon: CP_BOARD_MAGIC */
  uint32_t protocol; /* daemon: CP_PROTOCOL */
  uint32_t kind;     /* daemon: CP_KIND_* */
};

enum { CP_KIND_HOST = 0, CP_KIND_CUDA = 1 };
/* What the daemon must know about a job's use of its device.  Bits are set and never taken back. */
enum {
  CP_TRAIT_DEVICE = 1, /* it has used the device's driver */
  CP_TRAIT_SHARED = 2, /* it has given others access to its memory: that cannot be moved */
  CP_TRAIT_UNGATED = 4, /* calls of the driver pass beside the gate: turns do not hold it back */
  CP_TRAIT_COLLECTIVE = 8, /* its processes communicate by NCCL: they must compute at the same time */
  CP_TRAIT_FIXED = 16 /* it has much device memory that is not Carpool's: that is not limited and cannot be moved */
};

/* PAUSE: close at once, save nothing and keep the turn; NO lets it go on, NOW makes it save and let go. */
enum { CP_YIELD_NO = 0, CP_YIELD_BOUNDARY = 1, CP_YIELD_NOW = 2, CP_YIELD_PAUSE = 3 };
enum { CP_WANT_NO = 0, CP_WANT_TURN = 1, CP_WANT_URGENT = 2 };
enum { CP_GROW_NONE = 0, CP_GROW_GRANTED = 1, CP_GROW_DENIED = 2 };
enum { CP_LEAVE_NO = 0, CP_LEAVE_ASKED = 1, CP_LEAVE_LEFT = 2, CP_LEAVE_STAYS = 3 };
enum { CP_OFFLOAD_NO = 0, CP_OFFLOAD_ASKED = 1, CP_OFFLOAD_DONE = 2, CP_OFFLOAD_DROP = 3 }; /* DROP: give the kept pages of an unused store back */

enum { CP_PLACED_YES = 1, CP_PLACED_TOO_LARGE = 2, CP_PLACED_CHANGED = 3, CP_PLACED_NO_SERVICE = 4 };
struct cp_seat {
  /* turn */
  uint32_t turn;      /*   0 futex. granter (daemon or predecessor): 1; the job itself: 0 when it has let go */
  uint32_t bell;      /*   4 futex, the doorbell: incremented to notify the helper thread */
  uint32_t yield;     /*   8 futex (PAUSE). daemon: CP_YIELD_*; the job resets it to 0 when it lets go */
  uint32_t successor; /*  12 daemon: slot + 1 of the job that computes next, 0: none waits */
  uint32_t want;      /*  16 job: CP_WANT_* */
  uint32_t passed_to; /*  20 job: slot + 1 it handed its last turn to, 0: no job got it */
  uint32_t pid;       /*  24 job: pid of the attached process */
  uint32_t grace_us;  /*  28 daemon: off the device for so long: idle (see watch) */
  /* memory */
  uint64_t p_limit;     /*  32 daemon: persistent bytes granted */
  uint64_t e_limit;     /*  40 daemon: ephemeral extent granted (<= size of the lane) */
  uint32_t grow_seq;    /*  48 job: number of its latest request for memory */
  uint32_t grow_ack;    /*  52 futex. daemon: number of the latest request answered */
  uint32_t grow_status; /*  56 daemon: CP_GROW_* of the latest answer */
  uint32_t offload;     /*  60 CP_OFFLOAD_*: daemon asks, job answers; daemon resets */
  uint64_t p_live;      /*  64 job: live bytes, persistent class */
  uint64_t p_peak;      /*  72 job: the persistent bytes its arenas have needed at most (what p_limit must cover) */
  uint64_t e_live;      /*  80 job: live bytes, ephemeral class */
  uint64_t e_peak;      /*  88 job: the extent its ephemeral arena has needed at most (what e_limit must cover) */
  uint64_t p_used;      /*  96 job: persistent bytes backed at present, without `made` */
  /* progress; times are CLOCK_MONOTONIC microseconds */
  uint64_t iterations;     /* 104 job */
  uint64_t progress_done;  /* 112 job */
  uint64_t progress_total; /* 120 job */
  uint64_t turns;          /* 128 job: turns it has had */
  uint64_t held_us;        /* 136 job: time in finished turns */
  uint64_t turn_start_us;  /* 144 granter: start of the present turn */
  uint64_t residue;        /* 152 job: bytes saved at its last switch */
  uint64_t residue_total;  /* 160 job: bytes saved in all */
  uint32_t switch_us;      /* 168 job: moving average of revoke + grant */
  uint32_t cause;          /* 172 job: why its last turn ended: 1 boundary, 2 early, 3 forced, 4 exit */
  uint64_t boundary_us;    /* 176 job: last iteration boundary */
  uint64_t first_use_us;   /* 184 job: first device use */
  uint64_t traps;          /* 192 job */
  uint64_t early;          /* 200 job: early releases */
  uint32_t forced;         /* 208 job: forced revocations */
  uint32_t coming;         /* 212 predecessor: 1, the turn is about to come, do not go back to sleep; the job resets it */
  uint64_t promoted;       /* 216 job: bytes moved from ephemeral to persistent */
  uint64_t passed_seq;     /* 224 job: incremented with every turn it lets go */
  uint32_t offloaded;      /* 232 job: 1 while its memory is in the host store */
  uint32_t grow_class;   /* 236 job, before GROW: class of the waiting request | 256 if optional | 512 if withdrawn | 1024 if the turn cannot end before | 2048 if it packs (a new daemon reads it) */
  uint64_t lane;           /* 240 daemon: the lane it belongs to; written before the LANE packet is sent */
  uint64_t grow_total;   /* 248 job, before GROW: bytes of the waiting request */
  /* oversubscription */
  uint32_t watch;         /* 256 daemon: 1, another job waits: let go once off the device for grace_us; the job resets it when it lets go */
  uint32_t offload_error; /* 260 job: errno of its last offload that failed, before OFFLOADED */
  uint64_t bank;          /* 264 daemon: the device buffer behind its persistent arenas; written before the BANK packet is sent */
  uint64_t stored;        /* 272 job (daemon, when taken from outside): bytes that are in the host store now */
  uint64_t store_bytes;   /* 280 job: bytes that its host store has needed at most, and keeps */
  uint64_t out_bytes;     /* 288 job: bytes offloaded in all, and the time it took */
  uint64_t out_us;        /* 296 job */
  uint64_t in_bytes;      /* 304 job: bytes restored in all, and the time it took */
  uint64_t in_us;         /* 312 job */
  uint64_t resume_us;     /* 320 job: last restore: from its begin until computing could go on */
  uint64_t demanded;      /* 328 job: touches of pages that were not back yet */
  uint32_t traits;        /* 336 job: CP_TRAIT_* */
  uint32_t whole;         /* 340 daemon, before SETUP or the first use: CP_WHOLE_* (CUDA) */
  uint64_t fixed;         /* 344 job: bytes of device memory that it has from the driver itself (CUDA) */
  uint32_t close_lane;    /* 352 daemon: 1, its memory is closed between its turns (CUDA, debugging) */
  uint32_t paused;     /* 356 job: pause_seq as it was when it closed because of CP_YIELD_PAUSE; 0: open, or without a turn */
  uint32_t leave;         /* 360 CP_LEAVE_*: daemon asks, when another process of the job needs the seat; job answers */
  uint32_t out_of_memory; /* 364 job: CP_OUT_OF_*, written by its main process when it ends */
  uint32_t pause_seq;     /* 368 daemon: number of the latest CP_YIELD_PAUSE, before it; not 0 */
  uint32_t demand_seq;    /* 372 job: number of its latest demand, before WANT says it */
  uint64_t weights;       /* 376 job: what a service's turn is for: the weights' key, 0: there is no demand, */
  uint64_t weights_bytes; /* 384 job: the bytes of their memory on the device, */
  uint64_t reload_us;     /* 392 job: what copying them takes, */
  uint64_t compute_us;    /* 400 job: what computing is expected to take, */
  uint64_t deadline_us;   /* 408 job: and when (CLOCK_MONOTONIC) it has to be done, 0: no matter when */
  uint32_t placed_seq;    /* 416 futex. daemon: number of the latest demand answered */
  uint32_t placed;        /* 420 daemon: CP_PLACED_*, the answer */
  uint64_t paused_us;     /* 424 daemon: since when it has been paused, 0: it is not */
  uint64_t ahead_us;      /* 432 daemon: the device may have so much of its work before it, 0: any (CUDA, beside a service).  The doorbell is rung afterwards */
  uint64_t others;        /* 440 daemon, before it refuses memory: bytes of the device that others have */
  char passing[40];       /* 448 job, before CP_TRAIT_UNGATED: the form of a hooked call that passes because it is not known */
  uint64_t handles;       /* 488 job, before GROW: of p_limit, bytes for memory that it makes itself; no device buffer lies behind them (CUDA) */
  uint64_t made;          /* 496 job: bytes of that memory that exist now, 0: all of it has moved out (CUDA) */
  uint64_t reserved[1];   /* 504 */
};
/* NO: memory by grant.  Otherwise its memory is the driver's.  ALL: it has the device to itself.  SHARE: at most p_limit
 * bytes of it, of both classes together; it asks for more as for persistent memory (a further process of a job). */
enum { CP_WHOLE_NO = 0, CP_WHOLE_ALL = 1, CP_WHOLE_SHARE = 2 };
enum { CP_OUT_OF_NOTHING = 0, CP_OUT_OF_DEVICE = 1, CP_OUT_OF_HEAP = 2, CP_OUT_OF_OTHER = 3 };
_Static_assert(sizeof(struct cp_seat) == 512, "seat size is part of the protocol");

/* A device buffer ("bank" in names) is a piece of device memory for persistent arenas: a memfd of CP_WINDOWS windows,
 * window i of the job at offset i * window.  Jobs of one owner use a device buffer one after another: its pages stay,
 * their content changes.
 *
 * The host store is one memfd per job: the same layout, then one byte per chunk of CP_CHUNK bytes (CP_IN_DEVICE or
 * CP_IN_STORE), which says where the chunk's content is.  Who moves content holds an OFD write lock on the first byte of
 * the file, through a description of its own (/proc/self/fd/N): the job, or its shim while the job is stopped. */
#define CP_CHUNK (2u << 20)
enum { CP_IN_DEVICE = 0, CP_IN_STORE = 1 };

/* Packets on the job channel (SOCK_SEQPACKET), native byte order, always this size. */
struct cp_packet {
  uint32_t type;
  uint32_t pid;
  uint64_t a, b, c, d, e;
};
_Static_assert(sizeof(struct cp_packet) == 48, "packet size is part of the protocol");

enum { /* job -> daemon */
  CP_HELLO = 1,    /* a: CP_PROTOCOL, b: 1 = it is about to use its device.  Answer: CP_SETUP with descriptors, or CP_REFUSED */
  CP_WANT = 2,     /* the job waits for a turn.  a: demand_seq, 0: a turn without a demand */
  CP_URGENT = 3,   /* it waits, and a signal waits for it */
  CP_RELEASED = 4, /* turn over, no successor.  a: cause, b: passed_seq */
  CP_PASSED = 5,   /* turn over, handed to slot b.  a: cause, c: passed_seq */
  CP_GROW = 6,     /* a: class (0 persistent, 1 ephemeral, 2 share), b: total bytes wanted, c: grow_seq, d: 1 = optional | 2 if it keeps its turn | 4 if it packs: b stands for all of its limits, its lane keeps nothing of it */
  CP_SHRUNK = 7,   /* a: class, b: total bytes still needed (it gave pages back) */
  CP_OFFLOADED = 8, /* a: 0 done, otherwise errno: nothing has changed.  b: bytes in the store */
  CP_CUT_DONE = 9, /* answer to CUT, with the same a, b, c: nothing of that is mapped any more */
  CP_PAUSED = 12,   /* it holds its turn, and is closed because of CP_YIELD_PAUSE.  a: pause_seq */
  CP_WITHDRAWN = 11, /* a: class, c: grow_seq: no longer waited for.  Answered in the seat as GROW is, unless it has been */
  CP_LEFT = 10    /* seat.leave has been answered.  a: 0 the seat is free, 1 it is in use */
};
/* On a CUDA device a lane or device buffer is a list of extents, each a descriptor of its own.  SETUP brings the seat
 * table alone, LANE and BANK bring nothing: the job then has no extent of its lane (device buffer), and EXTENT brings
 * them one by one, also later.  The daemon sends what a job needs before it writes limits, an answer or a turn into its
 * seat, so the job reads its channel to the end before it uses any of those. */
enum {            /* daemon -> job */
  CP_SETUP = 101, /* a: slot, b: arena window in bytes (whole GiB), c: lane id, d: device capacity, e: bank; descriptors: board, lane, bank, store */
  CP_LANE = 102,  /* a: lane id; descriptor: another lane's memfd.  Only while the job holds no turn; the doorbell is rung afterwards */
  CP_BANK = 104, /* a: number of the bank; descriptor: its memfd.  Only to a job whose memory is all in the store */
  CP_EXTENT = 105, /* a: lane or bank, b: class (0 bank, 1 lane), c: offset, d: size; descriptor.  Ignored unless a is the job's present one and c the end of what it has */
  CP_CUT = 106,   /* a, b: as in EXTENT, c: the new end.  The doorbell is rung afterwards.  The job unmaps what lies beyond, if a is its present one, and answers CUT_DONE in any case; also while it holds the turn, but for what work of that turn may use, which limits cover: that stays, unanswered, until the turn ends.  b CP_CUT_WEIGHTS, unanswered on a host device: the weights whose key a is have been dropped, and all of their memory is, or will be, that of others */
  CP_WEIGHTS = 107, /* a: key, b: bytes; descriptor.  c 0: their memory, on a CUDA device the header of it alone; c 1: their extent there, and d: its number.  Before placed_seq says that they are there */
  CP_REFUSED = 103 /* the process may not attach: it runs as a plain CPU process.  a: 1 another process is attached, 2 version.  b: CP_KIND_* of the device.  With a 1 and HELLO's b 0 it may ask again when it is about to use its device */
};
enum { CP_CUT_WEIGHTS = 2 };
#endif
