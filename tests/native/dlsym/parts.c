/* What the libraries of one plugin have, and what an interposing library has. */
int cuInit(unsigned int flags);
int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes);
int cudaMalloc(void **address, unsigned long bytes);

#ifdef PLUGIN
int own_of_plugin(void) { return 41; }
#endif

#ifdef DEP
int curl_x(void) { return 42; }
int plain_x(void) { return 43; }
int cupid_x(void) { return 44; }
int twice_1(void) { return 1; }
int twice_2(void) { return 2; }
__asm__(".symver twice_1, twice@V1\n.symver twice_2, twice@@V2");
int runtime_malloc(void **address, unsigned long bytes) { return !address + (int)bytes; }
__asm__(".symver runtime_malloc, cudaMalloc@@libcudart.so.12");
int initialise(void) { return cuInit(0); }
#endif

#ifdef INTERPOSER
int getpid(void) { return 1; }
int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes) { return !address + (int)bytes; }
#endif
