/* Registered kernels and variables, launches in all their forms, and libraries that are loaded by hand. */
#include "runtimetest.h"
#include "null_work.h"

enum { THREADS = 8, EACH = 500 };
static char shadows[THREADS][EACH];
static void *registers(void *argument) {
  char *own = argument;
  void **handle = __cudaRegisterFatBinary(&device_code);
  for (int i = 0; i < EACH; i++)
    __cudaRegisterFunction(handle, own + i, NULL, i % 2 ? "fill_u32" : "mix_u64", -1, NULL, NULL, NULL, NULL, NULL);
  return NULL;
}
/* Libraries may be loaded by several threads, and before anybody has called the driver. */
static void registration(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK_THAT(!pthread_create(&threads[i], NULL, registers, shadows[i]));
  for (int i = 0; i < THREADS; i++) CHECK_THAT(!pthread_join(threads[i], NULL));
  CHECK_THAT(calls("cuInit") == 0 && calls("cuLibraryLoadData") == 0);
  for (int i = 0; i < THREADS * EACH; i++) {
    cudaKernel_t kernel = NULL;
    OK(__cudaGetKernel(&kernel, &shadows[0][0] + i));
    CHECK_THAT(kernel);
  }
  CHECK_THAT(calls("cuLibraryLoadData") == THREADS); /* once for each library */
}

static void launches(void) {
  uint32_t *memory = take(MIB), value = 7;
  uint64_t count = 4;
  void *args[] = {&memory, &value, &count};
  cudaKernel_t kernel;
  cudaLaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1};
  cudaLaunchConfig_t config = {.gridDim = one, .blockDim = one, .attrs = &attribute, .numAttrs = 1};
  OK(fill(memory, 1, 4, NULL));
  CHECK_THAT(word_at(memory + 3) == 1 && word_at(memory + 4) == OLD_WORD);
  OK(__cudaGetKernel(&kernel, fill_u32));
  OK(__cudaLaunchKernel(kernel, one, one, args, 0, NULL));
  CHECK_THAT(word_at(memory) == 7);
  value = 8;
  OK(cudaLaunchKernelExC(&config, fill_u32, args));
  CHECK_THAT(word_at(memory) == 8 && calls("cuLaunchKernelEx") == 1);
  value = 9;
  OK(cudaLaunchCooperativeKernel(fill_u32, one, one, args, 0, NULL));
  CHECK_THAT(word_at(memory) == 9 && calls("cuLaunchCooperativeKernel") == 1);
  OK(cudaFree(memory));
}

static void wrong_launches(void) {
  static const dim3 none = {0, 1, 1}, wide = {1025, 1, 1}, many = {64, 64, 1}, deep = {1, 1, 65}, high = {1, 65536, 1};
  cudaLaunchConfig_t config = {.gridDim = none, .blockDim = one};
  cudaKernel_t kernel = NULL;
  FAILS(cudaLaunchKernel("unknown", one, one, NULL, 0, NULL), cudaErrorInvalidDeviceFunction);
  FAILS(cudaLaunchKernel(absent, one, one, NULL, 0, NULL), cudaErrorInvalidDeviceFunction);
  FAILS(cudaLaunchCooperativeKernel("unknown", one, one, NULL, 0, NULL), cudaErrorInvalidDeviceFunction);
  FAILS(cudaLaunchKernelExC(&config, "unknown", NULL), cudaErrorInvalidDeviceFunction);
  FAILS(cudaLaunchKernelExC(&config, fill_u32, NULL), cudaErrorInvalidConfiguration);
  FAILS(__cudaGetKernel(&kernel, "unknown"), cudaErrorInvalidDeviceFunction);
  FAILS(__cudaLaunchKernel(NULL, one, one, NULL, 0, NULL), cudaErrorInvalidDeviceFunction);
  FAILS(cudaLaunchKernel(fill_u32, none, one, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernel(fill_u32, one, wide, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernel(fill_u32, one, many, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernel(fill_u32, one, deep, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchKernel(fill_u32, high, one, NULL, 0, NULL), cudaErrorInvalidConfiguration);
  FAILS(cudaLaunchCooperativeKernel(fill_u32, one, wide, NULL, 0, NULL), cudaErrorInvalidConfiguration);
}

static void *has_none(void *argument) {
  dim3 grid, block;
  size_t bytes;
  cudaStream_t stream;
  FAILS(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream), cudaErrorMissingConfiguration);
  return argument;
}
/* <<<grid, block, bytes, stream>>>, also where arguments launch something themselves. */
static void configuration(void) {
  dim3 grid, block, two = {2, 3, 4};
  size_t bytes;
  cudaStream_t stream, mine = CU_STREAM_PER_THREAD;
  CHECK_THAT(!__cudaPushCallConfiguration(two, one, 48, mine));
  CHECK_THAT(!__cudaPushCallConfiguration(one, two, 16, NULL));
  in_thread(has_none);
  OK(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
  CHECK_THAT(grid.x == 1 && block.z == 4 && bytes == 16 && stream == NULL);
  OK(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
  CHECK_THAT(grid.y == 3 && block.x == 1 && bytes == 48 && stream == mine);
  has_none(NULL);
  int depth = 0;
  while (!__cudaPushCallConfiguration(one, one, 0, NULL)) depth++;
  IS(cudaGetLastError(), cudaErrorInvalidConfiguration);
  for (; depth; depth--) OK(__cudaPopCallConfiguration(&grid, &block, &bytes, &stream));
}

static void attributes(void) {
  struct cudaFuncAttributes of;
  int blocks = 0;
  memset(&of, 0xff, sizeof of);
  OK(cudaFuncGetAttributes(&of, fill_u32));
  CHECK_THAT(of.maxThreadsPerBlock == 1024 && of.clusterDimMustBeSet == 0 && of.reserved[15] == 0);
  FAILS(cudaFuncGetAttributes(&of, "unknown"), cudaErrorInvalidDeviceFunction);
  FAILS(cudaFuncGetAttributes(NULL, fill_u32), cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(fill_u32, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  FAILS(cudaFuncSetAttribute(fill_u32, (enum cudaFuncAttribute)4, 1), cudaErrorInvalidValue);
  FAILS(cudaFuncSetAttribute("unknown", cudaFuncAttributeMaxDynamicSharedMemorySize, 1), cudaErrorInvalidDeviceFunction);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_u32, 256, 0));
  CHECK_THAT(blocks > 0);
  blocks = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, fill_u32, 256, 0, cudaOccupancyDisableCachingOverride));
  CHECK_THAT(blocks > 0);
  FAILS(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, fill_u32, 256, 0, 2), cudaErrorInvalidValue);
  FAILS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, "unknown", 256, 0), cudaErrorInvalidDeviceFunction);
}

/* A variable has its registered size, and keeps what is copied to it. */
static void variables(void) {
  char *address, *again, value[TABLE_BYTES], back[TABLE_BYTES];
  memset(value, 'v', sizeof value);
  OK(cudaGetSymbolAddress((void **)&address, table));
  OK(cudaGetSymbolAddress((void **)&again, table));
  CHECK_THAT(address && address == again && word_at(address) == 0);
  OK(cudaMemcpyToSymbol(table, value, 32, 32, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(back, address, sizeof back, cudaMemcpyDeviceToHost));
  CHECK_THAT(!memcmp(back + 32, value, 32) && back[31] == 0);
  FAILS(cudaMemcpyToSymbol(table, value, 33, 32, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  FAILS(cudaMemcpyToSymbol(table, value, 1, 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  FAILS(cudaMemcpyToSymbol(table, value, 4, 0, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  FAILS(cudaGetSymbolAddress((void **)&again, fill_u32), cudaErrorInvalidSymbol);
}

/* One handle serves all devices. */
static void other_device(void) {
  OK(cudaSetDevice(1));
  uint32_t *memory = take(MIB);
  OK(fill(memory, 5, 1, NULL));
  CHECK_THAT(word_at(memory) == 5);
  OK(cudaFree(memory));
  OK(cudaSetDevice(0));
}

static void libraries(void) {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  uint32_t *memory = take(MIB), value = 3;
  uint64_t count = 1;
  OK(cudaLibraryLoadData(&library, "stub", NULL, NULL, 0, NULL, NULL, 0));
  OK(cudaLibraryGetKernel(&kernel, library, "fill_u32"));
  OK(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024, 1));
  FAILS(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024, 2), cudaErrorInvalidDevice);
  OK(cudaLaunchKernel(fill_u32, one, one, (void *[]){&memory, &value, &count}, 0, NULL));
  OK(__cudaLaunchKernel(kernel, one, one, (void *[]){&memory, &value, &count}, 0, NULL));
  CHECK_THAT(word_at(memory) == 3);
  FAILS(cudaLibraryGetKernel(&kernel, library, "absent"), cudaErrorSymbolNotFound);
  OK(cudaLibraryUnload(library));
  OK(cudaFree(memory));
}

/* Code is loaded when it is first needed, which may be in a capture. */
static void loading_in_a_capture(void) {
  static char late[1];
  cudaStream_t stream;
  cudaGraph_t graph;
  uint32_t *memory = take(MIB), value = 6;
  uint64_t count = 1;
  void **handle = __cudaRegisterFatBinary(&device_code);
  __cudaRegisterFunction(handle, late, NULL, "fill_u32", -1, NULL, NULL, NULL, NULL, NULL);
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaLaunchKernel(late, one, one, (void *[]){&memory, &value, &count}, 0, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
  OK(cudaFree(memory));
  __cudaUnregisterFatBinary(handle);
  FAILS(cudaLaunchKernel(late, one, one, (void *[]){&memory, &value, &count}, 0, NULL), cudaErrorInvalidDeviceFunction);
}

/* Code that is none of the emulated GPU's has null kernels, whose launches are counted. */
static void null_kernels(void) {
  static struct wrapper foreign = {0x466243b1, 1, "\x50\xed\x55\xba", NULL};
  static char any[1];
  void **handle = __cudaRegisterFatBinary(&foreign);
  __cudaRegisterFunction(handle, any, NULL, "_Z3anyv", -1, NULL, NULL, NULL, NULL, NULL);
  uint64_t before = emulator_null_count();
  OK(cudaLaunchKernel(any, one, one, NULL, 0, NULL));
  OK(cudaDeviceSynchronize());
  CHECK_THAT(emulator_null_count() == before + 1);
}

/* What is refused says so and is counted. */
static void refused(void) {
  char names[256];
  cudaGraphNode_t node = NULL;
  cudaGraphConditionalHandle handle;
  CHECK_THAT(emulator_unexpected_calls(NULL, 0) == 0); /* by all of the above */
  FAILS(cudaGraphAddNode(&node, NULL, NULL, NULL, 0, NULL), cudaErrorNotSupported);
  FAILS(cudaGraphConditionalHandleCreate(&handle, NULL, 0, 0), cudaErrorNotSupported);
  CHECK_THAT(emulator_unexpected_calls(names, sizeof names) == 2);
  CHECK_THAT(strstr(names, "cuGraphAddNode") && strstr(names, "cuGraphConditionalHandleCreate"));
}

int main(void) {
  registration();
  register_library();
  launches();
  wrong_launches();
  configuration();
  attributes();
  variables();
  other_device();
  libraries();
  loading_in_a_capture();
  null_kernels();
  refused();
  return 0;
}
