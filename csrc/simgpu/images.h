// Which of a kernel's images a GPU would load: what a fat binary was compiled for.

#pragma once

namespace simgpu {

// `binary`: what the program gave to __cudaRegisterFatBinary with the kernel's stub `host`.
void remember_image(const void* host, const void* binary);

// The architecture (86 for 8.6) of the image that the simulated card would load; that of the card
// itself where nothing is known of the kernel or no image fits. CUB takes its tuning by this number
// and refuses one that it was not compiled for, such as 8.9 in a build for 8.6 and 9.0.
int image_architecture(const void* host);

}  // namespace simgpu
