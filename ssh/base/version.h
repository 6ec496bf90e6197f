/* The program's version, in one place. */
#ifndef KEDGE_BASE_VERSION_H
#define KEDGE_BASE_VERSION_H

#define KEDGE_VERSION "0.1.0"

#endif
