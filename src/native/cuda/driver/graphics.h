/* Part of driver.h: OpenGL, EGL and VDPAU.  Their own types are plain numbers and pointers here.  The vendor declares these
 * calls in headers that need those of the other interfaces, so they are compared with nothing. */
#ifndef CARPOOL_DRIVER_GRAPHICS_H
#define CARPOOL_DRIVER_GRAPHICS_H

CU_CALL(cuGLCtxCreate, CUcontext *context, unsigned int flags, CUdevice device);
CU_CALL(cuGLCtxCreate_v2, CUcontext *context, unsigned int flags, CUdevice device);
CU_CALL(cuGLRegisterBufferObject, unsigned int buffer);
CU_CALL(cuGraphicsGLRegisterBuffer, CUgraphicsResource *resource, unsigned int buffer, unsigned int flags);
CU_CALL(cuGraphicsGLRegisterImage, CUgraphicsResource *resource, unsigned int image, unsigned int target,
        unsigned int flags);
CU_CALL(cuGraphicsEGLRegisterImage, CUgraphicsResource *resource, void *image, unsigned int flags);
CU_CALL(cuEGLStreamConsumerConnect, void *connection, void *stream);
CU_CALL(cuEGLStreamConsumerConnectWithFlags, void *connection, void *stream, unsigned int flags);
CU_CALL(cuEGLStreamProducerConnect, void *connection, void *stream, int width, int height);
CU_CALL(cuEventCreateFromEGLSync, CUevent *event, void *sync, unsigned int flags);
CU_CALL(cuVDPAUCtxCreate, CUcontext *context, unsigned int flags, CUdevice device, uint32_t display, void *ask);
CU_CALL(cuVDPAUCtxCreate_v2, CUcontext *context, unsigned int flags, CUdevice device, uint32_t display, void *ask);
CU_CALL(cuGraphicsVDPAURegisterVideoSurface, CUgraphicsResource *resource, uint32_t surface, unsigned int flags);
CU_CALL(cuGraphicsVDPAURegisterOutputSurface, CUgraphicsResource *resource, uint32_t surface, unsigned int flags);
#endif
