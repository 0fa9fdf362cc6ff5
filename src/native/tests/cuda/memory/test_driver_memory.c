/* Device memory in the seat: bytes by class, what the job is told about the device, what it shares. */
#include "tests/cuda/job.h"
#include "cuda/memory/driver_memory.h"

static uint64_t live(void) { return seat_of(0)->p_live; }

static void plain_allocations(void) {
  CUdeviceptr a, b;
  size_t pitch, free_bytes, total;
  uint64_t before = live();
  OK(cuMemAlloc_v2(&a, 3 * CP_MIB));
  OK(cuMemAllocPitch_v2(&b, &pitch, 1000, 64, 4));
  CHECK_THAT(live() == before + 3 * CP_MIB + pitch * 64 && pitch >= 1000);
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  CHECK_THAT(total == 256 * CP_MIB && free_bytes == total - live());
  OK(cuMemFree_v2(b));
  OK(cuMemFree_v2(a));
  CHECK_THAT(live() == before && seat_of(0)->p_peak >= before + 3 * CP_MIB);
  CHECK_THAT(cuMemFree_v2(12345) != CUDA_SUCCESS && live() == before);
  CHECK_THAT(cuMemAlloc_v2(&a, 1ull << 50) == CUDA_ERROR_OUT_OF_MEMORY && live() == before);
}

/* OptiX asks for the total alone. */
static void without_places_for_answers(void) {
  size_t free_bytes = 0, total = 0, own, all;
  CUgraphNode node;
  OK(cuMemGetInfo_v2(NULL, &total));
  OK(cuMemGetInfo_v2(&free_bytes, NULL));
  OK(cuMemGetInfo_v2(&own, &all));
  CHECK_THAT(total == 256 * CP_MIB && total == all && free_bytes == own);
  OK(cuMemGetInfo_v2(NULL, NULL));
  CHECK_THAT(cuGraphAddNode(&node, NULL, NULL, 0, NULL) != CUDA_SUCCESS);
  CHECK_THAT(cuMemAlloc_v2(NULL, CP_MIB) != CUDA_SUCCESS);
}

static void in_stream_order(void) {
  CUdeviceptr a;
  uint64_t before = live();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  OK(cuMemAllocAsync(&a, CP_MIB, stream));
  CHECK_THAT(live() == before + CP_MIB);
  OK(cuMemFreeAsync(a, stream));
  OK(cuMemAllocAsync_ptsz(&a, CP_MIB, NULL));
  OK(cuMemFree_v2(a)); /* either way of freeing will do */
  CHECK_THAT(live() == before);
}

static void arrays(void) {
  CUarray array;
  CUDA_ARRAY_DESCRIPTOR d = {.Width = 64, .Height = 32, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
  CUDA_ARRAY3D_DESCRIPTOR d3 = {.Width = 8, .Height = 4, .Depth = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  uint64_t before = live();
  OK(cuArrayCreate_v2(&array, &d));
  CHECK_THAT(live() == before + 64 * 32 * 2 * 4);
  OK(cuArrayDestroy(array));
  OK(cuArray3DCreate_v2(&array, &d3));
  CHECK_THAT(live() == before + 8 * 4 * 2 * 4);
  OK(cuArrayDestroy(array));
  CHECK_THAT(live() == before);
}

/* Memory of a handle is there until it is released and nothing maps it, in either order. */
static void handles(bool release_first) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  uint64_t before = live(), bytes = 4 * CP_MIB;
  OK(cuMemCreate(&handle, bytes, &prop, 0));
  CHECK_THAT(live() == before + bytes);
  OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  OK(cuMemMap(at, bytes, 0, handle, 0));
  if (release_first) OK(cuMemRelease(handle));
  CHECK_THAT(live() == before + bytes);
  OK(cuMemUnmap(at, bytes));
  CHECK_THAT(live() == (release_first ? before : before + bytes));
  if (!release_first) OK(cuMemRelease(handle));
  CHECK_THAT(live() == before);
  OK(cuMemAddressFree(at, bytes));
}

/* Many pieces, freed in another order. */
static void many_pieces(void) {
  enum { PIECES_HERE = 300 };
  static CUdeviceptr at[PIECES_HERE];
  uint64_t before = live();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < PIECES_HERE; i++) OK(cuMemAllocAsync(&at[i], 4096 + 512 * (size_t)i, stream));
    if (!round) spin_on(stream, 500000); /* what is freed after it is still there in the next round */
    for (int i = 0; i < PIECES_HERE; i++) OK(cuMemFreeAsync(at[(i * 7 + round) % PIECES_HERE], stream));
    CHECK_THAT(live() == before);
  }
  OK(cuStreamSynchronize(stream)); /* the driver keeps what is free until then */
}

/* So many that their places in the table collide. */
static void crowded_table(void) {
  enum { CROWD = 50000 };
  uint64_t before = live();
  for (uint64_t i = 0; i < CROWD; i++) {
    uint64_t key = 0x7f0000000000 + i * i % 99991 * 4096 + i; /* no two alike */
    OK(cp_memory_came(CUDA_SUCCESS, CP_ADDRESS, &key, 10, NULL));
  }
  CHECK_THAT(live() == before + 10 * CROWD);
  for (uint64_t n = 0; n < CROWD; n++) {
    uint64_t i = n * 7919 % CROWD, key = 0x7f0000000000 + i * i % 99991 * 4096 + i;
    CHECK_THAT(cp_memory_goes(CP_ADDRESS, key).bytes == 10);
  }
  CHECK_THAT(live() == before);
}

static void shared_memory_is_told(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  int fd;
  CHECK_THAT(!(seat_of(0)->traits & CP_TRAIT_SHARED));
  OK(cuMemCreate(&handle, 2 * CP_MIB, &prop, 0));
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK_THAT(seat_of(0)->traits == (CP_TRAIT_DEVICE | CP_TRAIT_SHARED));
  close(fd);
  OK(cuMemRelease(handle));
}

/* What is allocated before the process attaches counts from then on. */
static void allocated_before(void) {
  int pair[2];
  CUdeviceptr a;
  size_t free_bytes, total;
  make_seat_table();
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  daemon_fd = pair[1];
  use_device();
  OK(cuMemAlloc_v2(&a, 5 * CP_MIB));
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  CHECK_THAT(total > 256 * CP_MIB); /* the driver's word */
  attach_to(pair, 0);
  CHECK_THAT(live() == 5 * CP_MIB && seat_of(0)->p_peak == 5 * CP_MIB && seat_of(0)->traits == CP_TRAIT_DEVICE);
  OK(cuMemFree_v2(a));
  CHECK_THAT(live() == 0);
}

int main(void) {
  alarm(60);
  allocated_before();
  give();
  plain_allocations();
  without_places_for_answers();
  in_stream_order();
  arrays();
  handles(false);
  handles(true);
  many_pieces();
  crowded_table();
  shared_memory_is_told();
  CHECK_THAT(seat_of(0)->e_live == 0);
  return 0;
}
