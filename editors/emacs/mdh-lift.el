;;; mdh-lift.el --- Diagnostics of mdh-lift in Emacs  -*- lexical-binding: t; -*-

;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Three ways, for three habits:
;;
;; * lsp-mode: load this file; the server is an add-on, so it runs beside clangd.
;; * Eglot, which has one server per buffer: `M-x mdh-lift-eglot' uses mdh-lift for a buffer.
;; * Without a server: `M-x mdh-lift-check' fills a compilation buffer, in which `next-error' works.

;;; Code:

(require 'compile)

(defgroup mdh-lift nil
  "Lifting of annotated loop nests."
  :group 'tools)

(defcustom mdh-lift-command "mdh-lift"
  "The command."
  :type 'string
  :group 'mdh-lift)

(defcustom mdh-lift-trusted nil
  "Whether the preprocessor may run and the configuration of the project counts."
  :type 'boolean
  :group 'mdh-lift)

(defun mdh-lift-options ()
  "What the server is told when it starts."
  (list :trusted (if mdh-lift-trusted t :json-false)))

(defun mdh-lift-check ()
  "Check the file of this buffer; errors can be visited."
  (interactive)
  (compile (mapconcat #'shell-quote-argument
                      (list mdh-lift-command "check" "--format" "concise" (buffer-file-name))
                      " ")))

(defvar eglot-server-programs)
(declare-function eglot-ensure "eglot")

(defun mdh-lift-eglot ()
  "Use mdh-lift as the server of this buffer."
  (interactive)
  (require 'eglot)
  (setq-local eglot-server-programs
              `((,major-mode . (,mdh-lift-command "lsp" :initializationOptions ,(mdh-lift-options)))))
  (eglot-ensure))

(declare-function lsp-register-client "lsp-mode")
(declare-function make-lsp-client "lsp-mode")
(declare-function lsp-stdio-connection "lsp-mode")

(with-eval-after-load 'lsp-mode
  (lsp-register-client
   (make-lsp-client :new-connection (lsp-stdio-connection (lambda () (list mdh-lift-command "lsp")))
                    :major-modes '(c-mode c-ts-mode python-mode python-ts-mode)
                    :add-on? t
                    :initialization-options #'mdh-lift-options
                    :server-id 'mdh-lift)))

(provide 'mdh-lift)
;;; mdh-lift.el ends here
