/* Null modules: their kernels, their variables, and what they say of themselves. */
#include "driver/extra.h"
#include "null_work.h"
#include "stubtest.h"
#include <time.h>

enum { KERNEL_US = 2000, OWED_US = 1000 }; /* of a null kernel; what earlier ones may have slept too long */
static const char image[] = "\x50\xed\x55\xba not a text";
static CUmodule null_module;

static uint64_t now_us(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}
static CUfunction null_kernel(const char *name) {
  CUfunction found;
  OK(cuModuleGetFunction(&found, null_module, name));
  return found;
}
static void launch_null(CUstream stream) {
  OK(cuLaunchKernel(null_kernel("_Z3addPf"), 216, 1, 1, 512, 1, 1, 0, stream, NULL, NULL));
}

static void kernels_have_names(void) {
  const char *name;
  CUmodule of;
  CUfunction unknown;
  CUfunction add = null_kernel("_Z3addPf");
  CHECK_THAT(add == null_kernel("_Z3addPf") && add != null_kernel("_Z3mulPf"));
  OK(cuFuncGetName(&name, add));
  OK(cuFuncGetModule(&of, add));
  CHECK_THAT(!strcmp(name, "_Z3addPf") && of == null_module);
  CHECK_THAT(null_kernel("fill_u32") != function("fill_u32")); /* only the text "stub" has kernels that compute */
  IS(cuModuleGetFunction(&unknown, module, "_Z3addPf"), CUDA_ERROR_NOT_FOUND);
}

static void kernels_write_nothing_and_are_counted(void) {
  uint64_t before = emulator_null_count();
  uint32_t value = 0;
  CUdeviceptr data = take(MIB);
  OK(fill(NULL, data, 4711, 1));
  void *params[] = {&data};
  OK(cuLaunchKernel(null_kernel("_Z4zeroPi"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH_v2(&value, data, 4));
  CHECK_THAT(value == 4711 && emulator_null_count() == before + 1);
  IS(cuLaunchKernel(null_kernel("_Z4zeroPi"), 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
  CHECK_THAT(emulator_null_count() == before + 1);
  OK(cuMemFree_v2(data));
}

/* Many of them take as long as they should, in order, while nobody computes. */
static void kernels_take_their_time(void) {
  enum { LAUNCHES = 50 };
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint64_t from = now_us(CLOCK_MONOTONIC), computed = now_us(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < LAUNCHES; i++) launch_null(stream);
  CUresult asked = cuStreamQuery(stream);
  CHECK_THAT(asked == CUDA_ERROR_NOT_READY ||
             (asked == CUDA_SUCCESS && now_us(CLOCK_MONOTONIC) - from >= LAUNCHES * KERNEL_US - OWED_US));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(now_us(CLOCK_MONOTONIC) - from >= LAUNCHES * KERNEL_US - OWED_US);
  CHECK_THAT(now_us(CLOCK_PROCESS_CPUTIME_ID) - computed < LAUNCHES * KERNEL_US / 2);
  OK(cuStreamDestroy_v2(stream));
}

static CUgraph captured(CUstream stream, int kernels) {
  CUgraph graph;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < kernels; i++) launch_null(stream);
  OK(cuStreamEndCapture(stream, &graph));
  return graph;
}
static void replays_take_time_and_are_not_counted(void) {
  CUstream stream;
  CUgraphExec exec;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph = captured(stream, 3);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  uint64_t before = emulator_null_count(), from = now_us(CLOCK_MONOTONIC);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(now_us(CLOCK_MONOTONIC) - from >= 3 * KERNEL_US - OWED_US && emulator_null_count() == before);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(stream));
}
static void graphs_say_how_nodes_depend(void) {
  CUstream stream;
  CUgraphNode nodes[2], on[2];
  size_t count = 2, depends = 2;
  char path[] = "/tmp/modules.XXXXXX", text[256] = "";
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUgraph graph = captured(stream, 2);
  OK(cuGraphGetNodes(graph, nodes, &count));
  OK(cuGraphNodeGetDependencies(nodes[1], on, &depends));
  CHECK_THAT(count == 2 && depends == 1 && on[0] == nodes[0]);
  OK(cuGraphNodeGetDependencies_v2(nodes[0], NULL, NULL, &depends));
  CHECK_THAT(depends == 0);
  int fd = mkstemp(path);
  OK(cuGraphDebugDotPrint(graph, path, 0));
  CHECK_THAT(read(fd, text, sizeof text - 1) > 0 && strstr(text, "node_0 -> node_1;") && !strstr(text, "node_1 -> "));
  CHECK_THAT(!close(fd) && !unlink(path));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(stream));
}

static void variables_are_zeroed_memory(void) {
  CUdeviceptr table, again;
  size_t bytes, before = free_bytes();
  uint32_t words[1024], value = 7;
  IS(cuModuleGetGlobal_v2(&table, &bytes, null_module, "table"), CUDA_ERROR_NOT_FOUND);
  emulator_variable(null_module, "table", sizeof words);
  CHECK_THAT(free_bytes() == before); /* only those that are asked for cost memory */
  OK(cuModuleGetGlobal_v2(&table, &bytes, null_module, "table"));
  CHECK_THAT(bytes == sizeof words && free_bytes() < before);
  OK(cuMemcpyDtoH_v2(words, table, sizeof words));
  for (int i = 0; i < 1024; i++) CHECK_THAT(words[i] == 0);
  OK(cuMemcpyHtoD_v2(table + 4, &value, 4));
  OK(cuModuleGetGlobal_v2(&again, NULL, null_module, "table"));
  OK(cuMemcpyDtoH_v2(&words[0], again + 4, 4));
  CHECK_THAT(again == table && words[0] == 7);
  OK(cuModuleGetGlobal_v2(NULL, &bytes, null_module, "table"));
  IS(cuModuleGetGlobal_v2(NULL, NULL, null_module, "table"), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(table), CUDA_ERROR_INVALID_VALUE);
  OK(cuModuleUnload(null_module));
  CHECK_THAT(free_bytes() == before);
  OK(cuModuleLoadFatBinary(&null_module, image));
}

static void libraries_are_modules(void) {
  CUlibrary library, of;
  CUkernel kernel;
  CUfunction launched;
  CUdeviceptr table;
  size_t bytes, before = free_bytes();
  const char *name;
  int value;
  OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetKernel(&kernel, library, "_Z3divPf"));
  OK(cuKernelGetName(&name, kernel));
  OK(cuKernelGetLibrary(&of, kernel));
  CHECK_THAT(!strcmp(name, "_Z3divPf") && of == library);
  OK(cuKernelSetAttribute((CUfunction_attribute)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096, kernel, 0));
  OK(cuKernelGetAttribute(&value, (CUfunction_attribute)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
  OK(cuKernelGetFunction(&launched, kernel));
  OK(cuLaunchKernel(launched, 1, 1, 1, 1, 1, 1, 4096, NULL, NULL, NULL));
  emulator_variable((CUmodule)library, "table", 4);
  OK(cuLibraryGetGlobal(&table, &bytes, library, "table"));
  CHECK_THAT(value == 4096 && bytes == 4);
  OK(cuLibraryUnload(library));
  CHECK_THAT(free_bytes() == before);
}

static int attribute_of(CUfunction kernel, int attribute) {
  int value;
  OK(cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, kernel));
  return value;
}
static void functions_have_attributes(void) {
  enum { SHARED = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES };
  CUfunction kernel = null_kernel("_Z3addPf");
  CHECK_THAT(attribute_of(kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
  CHECK_THAT(attribute_of(kernel, CU_FUNC_ATTRIBUTE_BINARY_VERSION) == 80);
  CHECK_THAT(attribute_of(kernel, SHARED) == 0);
  OK(cuFuncSetAttribute(kernel, (CUfunction_attribute)SHARED, 163 << 10));
  IS(cuFuncSetAttribute(kernel, (CUfunction_attribute)SHARED, 164 << 10), CUDA_ERROR_INVALID_VALUE);
  CHECK_THAT(attribute_of(kernel, SHARED) == 163 << 10);
  IS(cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
}

static size_t hundred_bytes_a_thread(int block_size) { return (size_t)block_size * 100; }
static int occupancy(int block_size, size_t shared_bytes) {
  int blocks;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, null_kernel("_Z3addPf"), block_size, shared_bytes));
  return blocks;
}
static void occupancy_is_that_of_the_device(void) {
  CUfunction kernel = null_kernel("_Z3addPf");
  int grid, block;
  size_t bytes;
  CHECK_THAT(occupancy(1024, 0) == 2 && occupancy(256, 0) == 8 && occupancy(250, 0) == 8 && occupancy(32, 0) == 32);
  CHECK_THAT(occupancy(256, 48 << 10) == 3 && occupancy(256, 163 << 10) == 1 && occupancy(256, 164 << 10) == 0);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, NULL, 0, 0));
  CHECK_THAT(block == 1024 && grid == 2 * 108);
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, hundred_bytes_a_thread, 0, 0));
  CHECK_THAT(block == 544 && grid == 3 * 108); /* three blocks fit into the shared memory of a multiprocessor */
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, NULL, 0, 300));
  CHECK_THAT(block == 256 && grid == 8 * 108);
  OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 2, 1024));
  CHECK_THAT(bytes == 81 << 10);
}

static int attribute(int which) {
  int value;
  OK(cuDeviceGetAttribute(&value, (CUdevice_attribute)which, 0));
  return value;
}
static void the_device_is_like_an_a100(void) {
  char name[64];
  const char *text;
  OK(cuDeviceGetName(name, sizeof name, 0));
  CHECK_THAT(!strcmp(name, "Carpool emulated GPU"));
  CHECK_THAT(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 8);
  CHECK_THAT(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == 0);
  CHECK_THAT(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 108 && attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == 1);
  CHECK_THAT(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) == 40 << 20 && attribute(9999) == 0);
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK_THAT(!strcmp(text, "out of memory"));
}

static void refused_calls_are_counted(void) {
  CUlinkState state;
  char names[64];
  CHECK_THAT(emulator_unexpected_calls(NULL, 0) == 0);
  IS(cuLinkCreate_v2(0, NULL, NULL, &state), CUDA_ERROR_NOT_SUPPORTED);
  CHECK_THAT(emulator_unexpected_calls(names, sizeof names) == 1 && !strcmp(names, "cuLinkCreate_v2"));
}

/* Its memory goes with the context, and others may lie there when the module is unloaded. */
static void modules_outlive_contexts(void) {
  CUdeviceptr table;
  emulator_variable(null_module, "late", 4);
  OK(cuModuleGetGlobal_v2(&table, NULL, null_module, "late"));
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUdeviceptr other = take(MIB);
  OK(cuModuleUnload(null_module));
  OK(cuMemFree_v2(other));
}

int main(void) {
  setenv("EMULATOR_KERNEL_US", "2000", 1);
  begin();
  OK(cuModuleLoadData(&null_module, image));
  kernels_have_names();
  kernels_write_nothing_and_are_counted();
  kernels_take_their_time();
  replays_take_time_and_are_not_counted();
  graphs_say_how_nodes_depend();
  variables_are_zeroed_memory();
  libraries_are_modules();
  functions_have_attributes();
  occupancy_is_that_of_the_device();
  the_device_is_like_an_a100();
  refused_calls_are_counted();
  modules_outlive_contexts();
  return 0;
}
