// Threads of ours in a program that is not.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace gpumemtrace::capture {

// A thread that takes no signal: handlers run where they would run without us. Throws as std::thread
// does.
template <class Work>
std::thread start_quiet_thread(Work&& work) {
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    std::thread thread(std::forward<Work>(work));
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    return thread;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    throw;
  }
}

}  // namespace gpumemtrace::capture
