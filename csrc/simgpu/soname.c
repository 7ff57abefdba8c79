/* Deliberately empty: see CMakeLists.txt. */
typedef int simgpu_soname;
