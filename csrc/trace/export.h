// Marks what libgpumemtrace.so shows to the Python module and the torch hook; all else is hidden.
#pragma once

#define GPUMEMTRACE_API __attribute__((visibility("default")))
