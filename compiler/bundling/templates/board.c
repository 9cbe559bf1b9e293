/* Starts a program on a Cortex-M, with the vectors at the start of flash, and lets it print by
 * semihosting, which debuggers and qemu understand:
 *
 *   qemu-system-arm -machine mps2-an386 -semihosting -nographic -kernel example
 *
 * A board of one's own has other memory (board.ld), and prints by its UART.
 */
#include <stddef.h>
#include <stdint.h>

int main(void);
void print(const char *text);
void reset(void);

extern unsigned char data_load[], data_start[], data_end[], bss_start[], bss_end[], stack_end[];

static uintptr_t ask_host(uintptr_t operation, const void *argument) {
  register uintptr_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void print(const char *text) { (void)ask_host(0x04, text); } /* SYS_WRITE0 */

static __attribute__((noreturn)) void end(int status) {
  const uintptr_t reason[2] = {0x20026, (uintptr_t)status}; /* ADP_Stopped_ApplicationExit */
  for (;;) (void)ask_host(0x20, reason); /* SYS_EXIT_EXTENDED */
}

static void fault(void) {
  print("fault\n");
  end(2);
}

void reset(void) {
  /* Coprocessors 10 and 11: the floating-point unit, where there is one. */
  *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
  __asm__ volatile("dsb\n\tisb");
  for (size_t i = 0; data_start + i < data_end; ++i) data_start[i] = data_load[i];
  for (size_t i = 0; bss_start + i < bss_end; ++i) bss_start[i] = 0;
  end(main());
}

typedef void (*vector_t)(void);
__attribute__((section(".vectors"), used)) static const vector_t vectors[16] = {
    (vector_t)(uintptr_t)stack_end, reset, fault, fault, fault, fault, fault,
};

/* What every compiler asks for. */
