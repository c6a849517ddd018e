/* The memory of the fake accelerator. It is mapped twice: TensorFlow gets the addresses of a mapping without access
   rights, so that code of the host that reads or writes device memory as its own ends in SIGSEGV at that line. The
   plugin uses the second mapping. */
#ifndef ACCELERATOR_MEMORY_H
#define ACCELERATOR_MEMORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type of the devices. Not "GPU": TensorFlow's build for CUDA has kernels of its own for that. */
#define ACCELERATOR_TYPE "ACCELERATOR"
/* Bytes of one device. TensorFlow's allocator takes pieces of them and never gives one back. */
#define ACCELERATOR_BYTES (512ull << 20)
#define ACCELERATOR_MOST_DEVICES 4

/* Maps the memory of all devices. Returns 0, or -1 where that isn't possible. */
int accelerator_memory_open(int devices);
/* An address without access rights; NULL if the device has not so much memory left. */
void *accelerator_memory_take(int device, uint64_t bytes);
/* The address at which the plugin may read and write what lies at an address; that address, if it is the host's. */
void *accelerator_memory_at(const void *address);

#ifdef __cplusplus
}
#endif
#endif
